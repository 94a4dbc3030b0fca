"""The node's resolver is asked for names and nothing else, whatever else a file opens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from network.cluster import read_cluster
from network.evaluate.flows import Flow, decide, read_objects
from network.evaluate.identities import address, pod
from network.evaluate.invariants import violations
from network.evaluate.matrix import evaluate
from network.model import Backend, matrix_json
from network.render.backend import baseline, render
from network.render.lint import lint
from tests.support.network_files import compose, values
from tests.support.node_resolver import ADDRESS, DNS, NAMESPACE, PROBES, allowed, cases, document

OPEN = "services: {default: {network_mode: bridge}}"


@pytest.mark.parametrize("backend", ["cilium", "gke-dpv2", "kubernetes"])
def test_no_port_of_the_nodes_resolver_but_53_and_that_only_with_dns(backend: Backend) -> None:
    for dns, outcome in cases(backend):
        rendered = document(outcome, backend)
        rules = read_objects(rendered["objects"])
        names = ("a.example", "x.b.example") if dns == "listed" else ()
        expected = DNS if backend == "kubernetes" and dns in ("all", "listed") else allowed(backend, dns)
        for spec in rendered["pods"].values():
            source = pod(NAMESPACE, spec["labels"])
            reached = {
                probe for probe in PROBES if decide(rules, Flow(source, address(ADDRESS, names), *probe)).allowed
            }
            isolated = "gauntlet.dev/isolated" in spec["labels"]
            assert reached == (set() if isolated else expected), (backend, dns)
        assert violations(rendered) == []


def _with_hole(objects: list[dict[str, Any]]) -> None:
    for entry in objects[0]["spec"]["egressDeny"][1]["toCIDRSet"]:
        if entry["cidr"] == "169.254.0.0/16":
            entry["except"] = [f"{ADDRESS}/32"]


def test_a_hole_for_the_resolver_is_found_by_lint_and_evaluator() -> None:
    outcome = compose(OPEN)
    rendered = document(outcome, "cilium")
    _with_hole(rendered["objects"])
    assert any(ADDRESS in line for line in lint(rendered["objects"], render(outcome, "cilium").pods))
    assert any("node's resolver" in text for text in violations(rendered))


def test_an_unfiltered_way_to_the_resolver_beside_filtered_ones_is_found() -> None:
    """Port 53 of the address without a DNS rule, where the cluster's resolvers are filtered."""
    rendered = document(compose("services: {default: {image: x}}"), "gke-dpv2")
    rule = {
        "to": [{"ipBlock": {"cidr": f"{ADDRESS}/32"}}],
        "ports": [{"protocol": "UDP", "port": 53}],
    }
    base = next(item for item in rendered["objects"] if item["metadata"]["name"].endswith(".base"))
    base["spec"]["egress"] = [rule]
    assert any("node's resolver" in text for text in violations(rendered))


@pytest.mark.parametrize(
    ("backend", "dns"),
    [("cilium", "all"), ("cilium", "listed"), ("gke-dpv2", "all"), ("gke-dpv2", "listed"), ("kubernetes", "all")],
)
@pytest.mark.parametrize(
    "ranges",
    ["vpc: [169.254.0.0/16]", "vpc: [128.0.0.0/2]", "services: [169.254.20.10/32]", "control_plane: [169.254.20.8/29]",
     "vpc: [169.254.20.10/31], services: [169.254.20.0/29, 169.254.20.8/31]"],
)  # fmt: skip
def test_a_protected_range_that_holds_the_nodes_resolver_closes_port_53_of_it_too(
    ranges: str, backend: Backend, dns: str
) -> None:
    """Names still resolve through the cluster's DNS pods, and a warning says what is closed."""
    cluster = f"protected: {{{ranges}, nodes: [10.1.0.0/24], pods: [10.8.0.0/14]}}\nenforcement: {{name_filter: true}}"
    listed = "allowDomains: [a.example]\nservices: {default: {image: x}}"
    outcome = values(listed, cluster=cluster) if dns == "listed" else compose(OPEN, cluster=cluster)
    assert outcome.ok and outcome.matrix["default"].dns == dns
    rendered = document(outcome, backend)
    rules = read_objects(rendered["objects"])
    source = pod(NAMESPACE, rendered["pods"]["default"]["labels"])
    assert not [probe for probe in PROBES if decide(rules, Flow(source, address(ADDRESS, ()), *probe)).allowed]
    cluster_dns = pod("kube-system", {"k8s-app": "kube-dns"})
    assert decide(rules, Flow(source, cluster_dns, "UDP", 53)).allowed
    described = read_cluster(cluster, "cluster.yaml")
    assert violations(rendered, [str(item.net) for item in described.protected_ranges()]) == []
    assert evaluate(rendered)["services"] == matrix_json(outcome.matrix, provenance=False)
    standing = baseline(backend, described, NAMESPACE).to_json()
    assert "except" not in json.dumps(standing)
    again = (
        values(listed, cluster=cluster, backend=backend)
        if dns == "listed"
        else compose(OPEN, cluster=cluster, backend=backend)
    )
    told = [item for item in again.report.warnings if "NodeLocal DNSCache" in item.message]
    assert [item.code for item in told] == ([] if backend == "cilium" else ["W20"])


@pytest.mark.parametrize("backend", ["gke-dpv2", "kubernetes"])
def test_a_protected_range_beside_the_nodes_resolver_does_not_close_it(backend: Backend) -> None:
    cluster = "protected: {vpc: [169.254.20.11/32], nodes: [10.1.0.0/24], pods: [10.8.0.0/14]}"
    rendered = document(compose(OPEN, cluster=cluster), backend)
    source = pod(NAMESPACE, rendered["pods"]["default"]["labels"])
    rules = read_objects(rendered["objects"])
    assert decide(rules, Flow(source, address(ADDRESS, ()), "UDP", 53)).allowed
