"""Cilium's engine on the node's resolver as an address: 53 where DNS is granted by address, else nothing."""

from __future__ import annotations

import pytest

from network.model import Backend
from tests.support.cilium import Engine
from tests.support.node_resolver import ADDRESS, NAMESPACE, PROBES, allowed, cases, document

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("backend", ["cilium", "gke-dpv2"])
def test_cilium_lets_through_nothing_but_53_and_that_only_with_dns(backend: Backend) -> None:
    with Engine() as engine:
        for dns, outcome in cases(backend):
            rendered = document(outcome, backend)
            names = ["a.example", "x.b.example"] if dns == "listed" else []
            pods = {name: {"namespace": NAMESPACE, "labels": spec["labels"]} for name, spec in rendered["pods"].items()}
            peers = {"resolver": {"ip": ADDRESS, "names": names}, "outside": {"ip": "203.0.113.7", "names": names}}
            flows = [
                {"from": source, "to": target, "protocol": protocol, "port": port}
                for source in pods
                for target in peers
                for protocol, port in PROBES
            ]
            answers = engine.decide(rendered["objects"], pods, peers, flows)
            assert not any(answer.error for answer in answers)
            passed = [flow for flow, answer in zip(flows, answers, strict=True) if answer.egress]
            for source in pods:
                reached = {
                    (flow["protocol"], flow["port"])
                    for flow in passed
                    if (flow["from"], flow["to"]) == (source, "resolver")
                }
                isolated = "gauntlet.dev/isolated" in pods[source]["labels"]
                assert reached == (set() if isolated else allowed(backend, dns)), (dns, source)
            # The same names elsewhere are open: the engine was really asked about a sandbox with grants.
            opened = any(flow["to"] == "outside" for flow in passed)
            assert opened == (dns in ("all", "listed") or bool(outcome.matrix["default"].cidrs)), dns
