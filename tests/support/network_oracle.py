"""What a verdict matrix promises of single flows, spelt out once more for tests.

Written from the meaning of the matrix's fields, with no look at any object: the third opinion between the
renderers, the evaluator and Cilium's engine.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

OTHER_SANDBOX = "another-sandbox"
SANDBOX_LABEL = "gauntlet.dev/sandbox-id"
ADDRESSES = (
    "203.0.113.7", "203.0.114.1", "10.20.3.4", "10.0.9.9", "10.65.0.1", "10.128.0.9", "198.51.100.7", "198.51.100.70",
    "192.0.2.9", "200.1.1.1", "8.8.8.8", "169.254.169.254", "169.254.20.10", "169.254.170.23", "168.63.129.16",
    "100.100.100.200", "2001:db8::7", "2600::1", "fd00:ec2::254", "fd20:ce::254", "fe80::1",
)  # fmt: skip
NAMED = {
    "198.18.0.1": "a.example", "198.18.0.2": "www.a.example", "198.18.0.3": "x.b.example",
    "198.18.0.4": "y.x.b.example",
    "198.18.0.5": "z.y.c.example", "198.18.0.6": "c.example", "198.18.0.7": "www.d.example", "198.18.0.8": "evil.test",
}  # fmt: skip
ENTITIES = ("host", "remote-node", "kube-apiserver", "health", "unmanaged")
PROBES = (
    ("TCP", 80), ("TCP", 443), ("TCP", 22), ("TCP", 53), ("TCP", 2222), ("TCP", 8080), ("TCP", 8443),
    ("UDP", 53), ("UDP", 443), ("UDP", 8080), ("SCTP", 8080), ("ICMP", 8), ("ICMP", 3), ("ICMPv6", 128),
)  # fmt: skip
ECHO = {("ICMP", 8), ("ICMPv6", 128)}


@dataclass(frozen=True)
class Promise:
    """The matrix and what it leaves to the backend."""

    services: Mapping[str, Mapping[str, Any]]
    isolated: frozenset[str]
    protected: Sequence[Any]
    extra_ports: Sequence[tuple[int, str, str | None]] = field(default_factory=tuple)
    #: Whether limited ports leave ICMP echo open, and every connected pod may ask the cluster's resolver.
    cilium: bool = True

    def allows(self, flow: Mapping[str, Any]) -> bool:
        """Whether a flow between two ends of `ends` arrives."""
        source, target = flow["from"], flow["to"]
        probe = (flow["protocol"], flow["port"])
        if source in self.services and target in self.services:
            return self._sibling(source, target, probe)
        if source in self.services:
            return self._outward(source, target, probe)
        if source.startswith(("address ", "named ")):
            return probe[0] == "TCP" and probe[1] in self.services[target]["outside_ingress"]
        return source == "host"  # the kubelet's probes; strangers and other entities never

    def _sibling(self, source: str, target: str, probe: tuple[str, int]) -> bool:
        verdict = self.services[target]
        if source not in verdict["reachable_from"]:
            return False
        if verdict["ports"] is None:
            return True
        if probe in ECHO:
            return self.cilium
        return any(port["port"] == probe[1] and port["protocol"] in (probe[0], "ANY") for port in verdict["ports"])

    def _outward(self, source: str, target: str, probe: tuple[str, int]) -> bool:
        verdict = self.services[source]
        kind, _, rest = target.partition(" ")
        if kind == "resolver":
            asks = source not in self.isolated and (self.cilium or verdict["dns"] in ("listed", "all"))
            return asks and probe in (("UDP", 53), ("TCP", 53))
        if kind not in ("address", "named"):
            return False
        if rest == "169.254.20.10" and not self.cilium:  # the node's resolver, which is an address there
            return verdict["dns"] in ("listed", "all") and probe in (("UDP", 53), ("TCP", 53))
        found = ipaddress.ip_address(rest)
        if any(found in item for item in self.protected):
            return False
        if verdict["internet"] == "all" or any(found in ipaddress.ip_network(item) for item in verdict["cidrs"]):
            return True
        return kind == "named" and self._named(NAMED[rest], verdict["domains"], probe)

    def _named(self, name: str, domains: Sequence[str], probe: tuple[str, int]) -> bool:
        for domain in domains:
            if not _matches(domain, name):
                continue
            if probe in (("TCP", 80), ("TCP", 443)):
                return True
            for port, protocol, only in self.extra_ports:
                protocols = ("TCP", "UDP", "SCTP") if protocol == "ANY" else (protocol,)
                if only in (None, domain) and port == probe[1] and probe[0] in protocols:
                    return True
        return False


def _matches(pattern: str, name: str) -> bool:
    deep = pattern.startswith("**.")
    body = re.escape(pattern.removeprefix("**.")).replace(r"\*", "[-a-z0-9_]*")
    return re.fullmatch(("([-a-z0-9_]+[.])+" if deep else "") + body, name) is not None


def ends(
    pods: Mapping[str, Mapping[str, Any]], namespace: str
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """Pods and peers of a request: the sandbox's services, strangers, resolvers, addresses and entities."""
    all_pods = {name: {"namespace": namespace, "labels": dict(pod["labels"])} for name, pod in pods.items()}
    first = next(iter(all_pods))
    own = all_pods[first]["labels"]
    all_pods["stranger same service"] = {"namespace": namespace, "labels": {**own, SANDBOX_LABEL: OTHER_SANDBOX}}
    all_pods["stranger elsewhere"] = {"namespace": "elsewhere", "labels": dict(own)}
    all_pods["stranger bare"] = {"namespace": namespace, "labels": {}}
    for app in ("kube-dns", "node-local-dns"):
        all_pods[f"resolver {app}"] = {"namespace": "kube-system", "labels": {"k8s-app": app}}
    peers: dict[str, dict[str, Any]] = {f"address {text}": {"ip": text} for text in ADDRESSES}
    peers |= {f"named {text}": {"ip": text, "names": [name]} for text, name in NAMED.items()}
    peers |= {name: {"entity": name} for name in ENTITIES}
    peers["api outside"] = {"ip": "198.51.100.99", "reserved": ["kube-apiserver"]}
    return all_pods, peers


def flows(services: Sequence[str], pods: Sequence[str], peers: Sequence[str]) -> list[dict[str, Any]]:
    """Every flow with a service at one end that a promise speaks of."""
    others = [name for name in (*pods, *peers) if name not in services]
    pairs = [(a, b) for a in services for b in services if a != b]
    pairs += [(a, b) for a in services for b in others]
    # Whether an API server outside the cluster may open 2222 is nobody's promise.
    pairs += [(a, b) for a in others for b in services if a != "api outside"]
    return [
        {"from": source, "to": target, "protocol": protocol, "port": port}
        for source, target in pairs
        for protocol, port in PROBES
    ]
