"""The pre-flight probe: what to try from inside a sandbox, and what its verdict promises of each try.

Pure. The probe runs beside the sandbox with the same labels and runtime before the first command. The plan
that carries the checks there is `network.probeplan`, and what came of them `network.proberesults` judges.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from network.model import Matrix, ServiceVerdict

Kind = Literal["tcp", "tls", "udp", "dns", "resolve", "icmp", "gateway", "interfaces"]
Expectation = Literal["reachable", "closed"]
METADATA: Mapping[str, str] = {
    "metadata-v4": "169.254.169.254",
    "metadata-eks-v4": "169.254.170.23",
    "metadata-azure-v4": "168.63.129.16",
    "metadata-v6": "fd00:ec2::254",
    "metadata-gce-v6": "fd20:ce::254",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to try, and what the verdict says about it. `reason` is for people."""

    id: str
    kind: Kind
    expect: Expectation
    reason: str
    address: str = ""
    port: int = 0
    name: str = ""
    server_name: str = ""


@dataclass(frozen=True, slots=True)
class Peer:
    """Another service of the sandbox: its address, and TCP ports on which it listens."""

    address: str
    ports: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Targets:
    """Addresses to try. Empty ones are left out, except the outside, which always has an address.

    `api_server` and `nodes` are addresses of the cluster, `strangers` addresses of other sandboxes
    with a port that listens there, `gateway_ports` host ports tried at the default gateway.
    `offline` adds the check that there is no interface but loopback.
    """

    outside_v4: str = "1.1.1.1"
    outside_v6: str = "2606:4700:4700::1111"
    outside_dns: str = "8.8.8.8"
    outside_name: str = "example.com"
    api_server: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    strangers: tuple[tuple[str, int], ...] = ()
    siblings: Mapping[str, Peer] = field(default_factory=dict)
    gateway_ports: tuple[int, ...] = (22, 80, 2375, 10250)
    offline: bool = False


def expected_checks(matrix: Matrix, service: str, targets: Targets) -> list[Check]:
    """What to try from one service, with the outcome that its verdict promises."""
    verdict = matrix[service]
    checks = [*_never(targets), *_outside(verdict, targets), *_names(verdict, targets)]
    for name, peer in sorted(targets.siblings.items()):
        if name != service:
            checks += _sibling(service, name, matrix[name], peer)
    return checks


def _never(targets: Targets) -> list[Check]:
    """What no verdict opens: metadata, the control plane, nodes, other sandboxes, the bridge's host."""
    checks = [
        Check(name, "tcp", "closed", "metadata hands out credentials", address, 80)
        for name, address in METADATA.items()
    ]
    for number, address in enumerate(targets.api_server):
        checks.append(Check(f"api-server-{number}", "tcp", "closed", "the control plane", address, 443))
    for number, address in enumerate(targets.nodes):
        checks.append(Check(f"kubelet-{number}", "tcp", "closed", "the node's kubelet", address, 10250))
        checks.append(Check(f"node-{number}", "tcp", "closed", "the node itself", address, 22))
    for number, (address, port) in enumerate(targets.strangers):
        checks.append(Check(f"other-sandbox-{number}", "tcp", "closed", "another sandbox", address, port))
    for port in targets.gateway_ports:
        reason = "a listener of the host at the gateway"
        checks.append(Check(f"gateway-{port}", "gateway", "closed", reason, port=port))
    if targets.offline:
        checks.append(Check("interfaces", "interfaces", "closed", "no network interface but loopback"))
    return checks


def _outside(verdict: ServiceVerdict, targets: Targets) -> list[Check]:
    checks: list[Check] = []
    for family, address in (("v4", targets.outside_v4), ("v6", targets.outside_v6)):
        granted = _granted(verdict, address)
        if granted and family == "v6":
            continue  # a node without IPv6 cannot reach it even where that is allowed
        expect: Expectation = "reachable" if granted else "closed"
        reason = f"internet: {verdict.internet}"
        checks.append(Check(f"outside-{family}", "tcp", expect, reason, address, 443))
        checks.append(
            Check(f"doh-{family}", "tls", expect, "DNS over HTTPS", address, 443, server_name="one.one.one.one")
        )
        if not granted:  # allowed, these may still go unanswered
            checks.append(Check(f"quic-{family}", "udp", expect, "UDP 443", address, 443))
            checks.append(Check(f"icmp-{family}", "icmp", expect, "ICMP echo", address))
    granted = _granted(verdict, targets.outside_dns)
    expect = "reachable" if granted else "closed"
    name = targets.outside_name
    checks.append(Check("outside-dns", "dns", expect, "a resolver outside", targets.outside_dns, 53, name))
    return checks


def _granted(verdict: ServiceVerdict, address: str) -> bool:
    if verdict.internet != "listed":
        return verdict.internet == "all"
    value = ipaddress.ip_address(address)
    return any(value in ipaddress.ip_network(cidr) for cidr in verdict.cidrs)


def _names(verdict: ServiceVerdict, targets: Targets) -> list[Check]:
    expect: Expectation = "reachable" if verdict.dns == "all" else "closed"
    checks = [Check("resolve-outside", "resolve", expect, f"dns: {verdict.dns}", name=targets.outside_name)]
    for domain in verdict.domains:
        if "*" not in domain:
            checks.append(Check(f"resolve-{domain}", "resolve", "reachable", "an allowed domain", name=domain))
    return checks


def _sibling(service: str, name: str, verdict: ServiceVerdict, peer: Peer) -> list[Check]:
    reachable = service in verdict.reachable_from
    limited = (
        None if verdict.ports is None else {port.port for port in verdict.ports if port.protocol in ("TCP", "ANY")}
    )
    checks = []
    for port in peer.ports:
        allowed = reachable and (limited is None or port in limited)
        reason = f"{name} is {'reachable' if allowed else 'not reachable'} from {service} on {port}"
        expect: Expectation = "reachable" if allowed else "closed"
        checks.append(Check(f"sibling-{name}-{port}", "tcp", expect, reason, peer.address, port))
    return checks
