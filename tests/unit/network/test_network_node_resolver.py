"""The node's resolver is asked for names and nothing else, whatever else a file opens."""

from __future__ import annotations

from typing import Any

import pytest

from network.evaluate.flows import Flow, decide, read_objects
from network.evaluate.identities import address, pod
from network.evaluate.invariants import violations
from network.model import Backend
from network.render.backend import render
from network.render.lint import lint
from tests.support.network_files import compose
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
