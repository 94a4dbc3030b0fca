"""The evaluator and Cilium's own policy engine give the same verdict on random objects and flows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from network.evaluate.flows import decide, read_objects
from tests.support import netobjects
from tests.support.cilium import Engine
from tests.support.networld import flow_of, world_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

EXAMPLES, FLOWS = 300, 150
EVERY_FLOW = netobjects.every_flow()
WORLD = world_of(netobjects.PODS, netobjects.PEERS)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine() as running:
        yield running


judged: list[int] = []


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(objects=netobjects.policy_sets(), seed=st.integers(0, 1 << 30))
def check_same_verdicts(engine: Engine, objects: list[dict[str, Any]], seed: int) -> None:
    flows = random.Random(seed).sample(EVERY_FLOW, FLOWS)
    answers = engine.decide(objects, netobjects.PODS, netobjects.PEERS, flows)
    rules = read_objects(objects)
    for flow, answer in zip(flows, answers, strict=True):
        if answer.error:
            continue  # a conflict between layer 7 rules, on which the engine has no verdict
        ours = decide(rules, flow_of(WORLD, flow))
        # The engine also governs the reserved ends, which clusterwide objects may select; no pod is meant there.
        if flow["from"] in netobjects.PODS:
            assert ours.egress == answer.egress, f"egress of {flow}"
        if flow["to"] in netobjects.PODS:
            assert ours.ingress == answer.ingress, f"ingress of {flow}"
        judged.append(1)


def test_evaluator_equals_cilium_on_thousands_of_random_flows(engine: Engine) -> None:
    judged.clear()
    check_same_verdicts(engine)
    assert len(judged) >= 5000
