"""The node's own resolver as an address: which of its ports each kind of grant may open, by backend.

`cases` are sandboxes that open as much as a file can, names that resolve to the resolver's address included;
`allowed` is what each may send there. On Cilium a resolver is a pod or the node itself, never an address.
"""

from __future__ import annotations

import json
from typing import Any

from network.check import Checked
from network.model import Backend
from network.render.backend import render
from tests.support.network_files import compose, values

ADDRESS = "169.254.20.10"
NAMESPACE = "gauntlet-sandboxes"
DNS = {("UDP", 53), ("TCP", 53)}
PROBES = [
    (protocol, port)
    for protocol in ("TCP", "UDP", "SCTP")
    for port in (1, 22, 52, 53, 54, 80, 443, 2222, 8080, 9253, 65535)
] + [("ICMP", 8), ("ICMP", 3), ("ICMPv6", 128)]
CLOSED = "services: {default: {image: x}, vault: {network_mode: none}}"
CLUSTER = "protected: {pods: [10.8.0.0/14], nodes: [10.1.0.0/24]}"
GATEWAY = "{backend: gke-dpv2, enforcement: {name_filter: true}}"
LISTED = """
allowDomains: [a.example, "*.b.example"]
allowDomainsPorts: [{port: 53, protocol: ANY, domain: a.example}, {port: 8080, protocol: TCP}]
services: {default: {image: x}}
"""


def cases(backend: Backend) -> list[tuple[str, Checked]]:
    """(dns verdict, checked file) of every sandbox to try."""
    found = [
        ("siblings", compose(CLOSED)),
        ("all", compose("services: {default: {network_mode: bridge}}")),
        ("all", compose("services: {default: {network_mode: bridge}}", cluster=CLUSTER)),
        ("siblings", values('allowCIDR: ["128.0.0.0/1", "160.0.0.0/3"]\nservices: {default: {image: x}}')),
    ]
    if backend == "cilium":
        found.append(("listed", values(LISTED)))
    for dns, outcome in found:
        assert outcome.ok and outcome.matrix["default"].dns == dns
    return found


def allowed(backend: Backend, dns: str) -> set[tuple[str, int]]:
    """What may be sent to the address."""
    return DNS if backend == "gke-dpv2" and dns in ("all", "listed") else set()


def document(outcome: Checked, backend: Backend) -> dict[str, Any]:
    """What is rendered, as plain JSON."""
    rendered: dict[str, Any] = json.loads(json.dumps(render(outcome, backend, namespace=NAMESPACE).to_json()))
    return rendered
