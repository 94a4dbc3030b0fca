"""File, evaluator and Cilium's engine agree on every rendered sandbox, on thousands of random flows a run."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from network.check import Checked
from network.cidrs import always_protected
from network.evaluate import evaluate
from network.evaluate.flows import decide, read_objects
from network.evaluate.invariants import violations
from network.model import Backend, matrix_json
from network.render.backend import Refused, render
from tests.support import network_oracle
from tests.support.cilium import Engine
from tests.support.network_files import checked
from tests.support.network_oracle import Promise
from tests.support.network_random import Case, cases
from tests.support.networld import flow_of, world_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

EXAMPLES, FLOWS, LEAST = 120, 120, 5000
NAMESPACE = "gauntlet-sandboxes"
SETTINGS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine() as running:
        yield running


def accepted(case: Case, backend: Backend) -> tuple[Checked, dict[str, Any]]:
    """The decision and the rendered document of a case; rejected and refused ones are dropped."""
    outcome = checked(case.text, kind=case.kind, cluster=case.cluster, human_eval=case.human_eval)
    assume(outcome.ok)
    try:
        rendered = render(outcome, backend, namespace=NAMESPACE)
    except Refused:
        assume(False)
        raise
    return outcome, json.loads(json.dumps(rendered.to_json()))


def promise_of(outcome: Checked, *, cilium: bool) -> Promise:
    assert outcome.decision is not None
    ranges = outcome.cluster.protected_ranges() if outcome.cluster else always_protected()
    return Promise(
        services=matrix_json(outcome.matrix, provenance=False),
        isolated=outcome.decision.isolated,
        protected=[item.net for item in ranges],
        extra_ports=[(item.port, item.protocol, item.domain) for item in outcome.decision.egress.ports],
        cilium=cilium,
    )


def judge(engine: Engine, case: Case, seed: int, backend: Backend) -> int:
    """Compare the three opinions on a random part of all flows; how many were compared."""
    outcome, document = accepted(case, backend)
    promise = promise_of(outcome, cilium=backend == "cilium")
    services = list(promise.services)
    pods, peers = network_oracle.ends(document["pods"], NAMESPACE)
    every = network_oracle.flows(services, list(pods), list(peers))
    flows = random.Random(seed).sample(every, min(FLOWS, len(every)))
    cluster = (outcome.cluster.cluster_name if outcome.cluster else None) or "default"
    answers = engine.decide(document["objects"], pods, peers, flows, cluster)
    rules = read_objects(document["objects"], cluster)
    world = world_of(pods, peers, cluster)
    for flow, answer in zip(flows, answers, strict=True):
        assert not answer.error, answer.error
        ours = decide(rules, flow_of(world, flow))
        promised = promise.allows(flow)
        assert ours.allowed == promised, f"the evaluator on {flow}"
        # An end that is no pod is governed by nothing of ours, and the engine knows no FQDNNetworkPolicy.
        if backend == "gke-dpv2" and flow["to"].startswith("named "):
            continue
        egress = answer.egress if flow["from"] in pods else True
        ingress = answer.ingress if flow["to"] in pods else True
        assert (egress and ingress) == promised, f"Cilium on {flow}"
    return len(flows)


@pytest.mark.parametrize("backend", ["cilium", "gke-dpv2"])
def test_matrix_evaluator_and_cilium_agree_on_random_flows(engine: Engine, backend: Backend) -> None:
    compared: list[int] = []

    @SETTINGS
    @given(case=cases(name_filter=backend == "gke-dpv2"), seed=st.integers(0, 1 << 30))
    def agree(case: Case, seed: int) -> None:
        compared.append(judge(engine, case, seed, backend))

    agree()
    assert sum(compared) >= LEAST


@pytest.mark.parametrize("backend", ["cilium", "gke-dpv2", "kubernetes"])
def test_matrix_of_the_file_equals_matrix_of_the_objects(backend: Backend) -> None:
    @SETTINGS
    @given(case=cases(name_filter=backend == "gke-dpv2"))
    def equal(case: Case) -> None:
        outcome, document = accepted(case, backend)
        assert evaluate(document)["services"] == matrix_json(outcome.matrix, provenance=False)

    equal()


@pytest.mark.parametrize("backend", ["cilium", "gke-dpv2", "kubernetes"])
def test_no_rendered_sandbox_breaks_an_invariant(backend: Backend) -> None:
    @SETTINGS
    @given(case=cases(name_filter=backend == "gke-dpv2"))
    def hold(case: Case) -> None:
        assert violations(accepted(case, backend)[1]) == []

    hold()


@pytest.mark.parametrize("backend", ["cilium", "gke-dpv2"])
def test_none_means_none_in_both_directions(engine: Engine, backend: Backend) -> None:
    """Every flow of the whole universe to and from an isolated service beside an open sibling."""
    outcome = checked(
        """
        services:
          default: {image: x, network_mode: bridge}
          web: {image: x, network_mode: bridge}
          scorer: {image: x, network_mode: none}
        """,
        kind="compose",
    )
    assert outcome.ok
    document = json.loads(json.dumps(render(outcome, backend, namespace=NAMESPACE).to_json()))
    pods, peers = network_oracle.ends(document["pods"], NAMESPACE)
    every = network_oracle.flows(["default", "web", "scorer"], list(pods), list(peers))
    flows = [flow for flow in every if "scorer" in (flow["from"], flow["to"]) and flow["from"] != "host"]
    answers = engine.decide(document["objects"], pods, peers, flows)
    assert len(flows) > 500
    for flow, answer in zip(flows, answers, strict=True):
        assert not answer.error
        open_half = answer.egress if flow["from"] == "scorer" else answer.ingress
        assert not open_half, flow


def test_cilium_parses_every_rendered_object(engine: Engine) -> None:
    seen: set[str] = set()

    @SETTINGS
    @given(case=cases(), backend=st.sampled_from(["cilium", "gke-dpv2", "kubernetes"]))
    def parse(case: Case, backend: Backend) -> None:
        for report in engine.parse(accepted(case, backend)[1]["objects"]):
            assert not report.error, report
            assert not report.skipped or report.kind == "Service", report
            seen.add(report.kind)

    parse()
    assert {"CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy", "NetworkPolicy"} <= seen


def test_the_engine_refuses_what_it_must() -> None:
    """Parse says no to an unknown entity and a misspelt key: its acceptance above means something."""
    spec = {"endpointSelector": {}, "egress": [{"toEntities": ["World"]}]}
    wrong = {"apiVersion": "cilium.io/v2", "kind": "CiliumNetworkPolicy", "metadata": {"name": "p", "namespace": "n"}}
    with Engine() as running:
        reports = running.parse(
            [
                {**wrong, "spec": spec},
                {**wrong, "spec": {**spec, "egress": [{"toEntitys": ["world"]}]}},
                {**wrong, "spec": {"endpointSelector": {}, "ingress": []}},
            ]
        )
    assert "unsupported entity" in reports[0].error
    assert "unknown field" in reports[1].error
    assert "at least one of" in reports[2].error
