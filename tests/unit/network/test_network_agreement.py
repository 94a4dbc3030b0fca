"""Two independent implementations agree: the matrix of a file and the matrix of its rendered objects.

The renderers turn verdicts into objects; the evaluator turns objects into verdicts and shares no code
with them. Random files go through both for every backend that can enforce them.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from network.check import Checked, Source, check
from network.cluster import Cluster, read_cluster
from network.evaluate.invariants import violations
from network.evaluate.matrix import evaluate
from network.model import matrix_json
from network.render.backend import Refused, render
from tests.support.network_files import compose, values
from tests.support.network_strategies import as_yaml, isolations, near, valid_compose, valid_values

BACKENDS = ("cilium", "gke-dpv2", "kubernetes", "docker")
CLUSTER = """
protected: {vpc: [10.0.0.0/20], nodes: [10.1.0.0/24], pods: [10.8.0.0/14], services: [10.96.0.0/16],
            control_plane: [203.0.113.200/32]}
versions: {cilium: 1.20.2}
cluster_name: east
"""
GATEWAY = "{backend: gke-dpv2, enforcement: {name_filter: true}}"
RUNS = settings(max_examples=150, deadline=None)


def agree(outcome: Checked, backend: str) -> bool:
    """Render, evaluate and compare; False when the backend refuses."""
    try:
        rendered = render(outcome, backend, sandbox_id="sbx_A-1", namespace="evals").to_json()  # type: ignore[arg-type]
    except Refused:
        return False
    expected = matrix_json(outcome.matrix, provenance=False)
    evaluated = evaluate(rendered)
    assert evaluated["services"] == expected
    assert evaluated.get("domain_ports", {}) == outcome.domain_ports
    assert violations(rendered) == []
    return True


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("with_cluster", [False, True])
def test_every_shape_of_verdict(backend: str, with_cluster: bool) -> None:
    cluster = read_cluster(CLUSTER, "c.yaml") if with_cluster else None
    agreed = sum(
        agree(outcome, backend)
        for outcome in (
            compose("services: {a: {image: x}}", cluster=cluster),
            compose("services: {a: {network_mode: none}}", cluster=cluster, human_eval=backend != "docker"),
            compose("services: {a: {network_mode: bridge}, v: {network_mode: none}}", cluster=cluster, human_eval=True),
            compose(
                "services: {a: {networks: [n]}, b: {networks: [n, m]}, c: {}}\nnetworks: {n: , m: }", cluster=cluster
            ),
            values(
                "allowCIDR: [0.0.0.0/0, '::/0', 10.0.0.0/8]\nservices: {default: {ports: [{port: 1}]}}", cluster=cluster
            ),
            values("allowDomains: [a.b, '*.c.d']\nallowDomainsPorts: [{port: 22}]", cluster=cluster),
            values(
                "services: {default: {ports: [{port: 1, protocol: ANY}]}, w: {networks: [n]}}\nnetworks: {n: {}}",
                cluster=cluster,
            ),
        )
    )
    assert agreed >= (2 if backend == "docker" else 5)


@pytest.mark.parametrize("ports", ["", "ports: [{port: 80, protocol: TCP}, {port: 53, protocol: ANY}]", "ports: []"])
@pytest.mark.parametrize("isolated", ["", "networkIsolated: true"])
def test_a_lone_services_ports_are_the_same_for_every_backend(ports: str, isolated: str) -> None:
    """Nobody can use them on a local sandbox, and the file limits them all the same."""
    body = ", ".join(text for text in ("image: x", ports, isolated) if text)
    outcome = values(f"services: {{default: {{{body}}}}}")
    assert all(agree(outcome, backend) for backend in BACKENDS)
    assert (outcome.matrix["default"].ports is None) == (bool(isolated) or "80" not in ports)


def test_domain_lists_behind_a_gateway_on_gke() -> None:
    text = "allowDomains: [a.b, '*.c.d']\nallowDomainsPorts: [{port: 22, protocol: TCP, domain: a.b}]"
    outcome = values(text, cluster=GATEWAY)
    assert agree(outcome, "gke-dpv2")
    policy = next(item for item in render(outcome, "gke-dpv2").objects if item["kind"] == "FQDNNetworkPolicy")
    assert policy["spec"]["egress"][0]["matches"] == [{"pattern": "*.c.d"}, {"name": "a.b"}]


def outcome_of(document: Any, kind: str | None, isolation: str | None, human: bool, cluster: Cluster | None) -> Checked:
    return check(
        Source(as_yaml(document), "f.yaml"),
        kind=kind,  # type: ignore[arg-type]
        isolation=None if isolation is None else Source(isolation, "i.yaml"),
        human_eval=human,
        cluster=cluster,
    )


clusters = st.sampled_from((None, read_cluster(CLUSTER, "c.yaml"), read_cluster(GATEWAY, "c.yaml")))


@RUNS
@given(valid_compose(), isolations, st.booleans(), clusters)
def test_random_compose_files(document: Any, isolation: str | None, human: bool, cluster: Cluster | None) -> None:
    outcome = outcome_of(document, "compose", isolation, human, cluster)
    for backend in BACKENDS:
        agree(outcome, backend)


@RUNS
@given(valid_values(), isolations, st.booleans(), clusters)
def test_random_values_files(document: Any, isolation: str | None, human: bool, cluster: Cluster | None) -> None:
    outcome = outcome_of(document, "values", isolation, human, cluster)
    for backend in BACKENDS:
        agree(outcome, backend)


@RUNS
@given(near(st.one_of(valid_compose(), valid_values())))
def test_random_damaged_files(document: Any) -> None:
    outcome = outcome_of(document, None, None, False, None)
    for backend in BACKENDS:
        agree(outcome, backend)
