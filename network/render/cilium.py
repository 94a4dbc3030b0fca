"""CiliumNetworkPolicy objects of one sandbox, and the clusterwide baseline (Cilium 1.18 and later).

Isolation comes from not granting. Deny rules appear in two places only: the baseline, for ranges that
stay closed whatever a file says, and isolated services' egress. A direction without any rule is not
denied by Cilium, so every direction carries the inert rule (`none` matches nobody).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from network.cidrs import always_protected, closed_nets, excepted, parse
from network.cluster import NODE_RESOLVER, Cluster
from network.model import Port, ServiceVerdict
from network.render.names import (
    CLUSTER_LABEL,
    DNS_APPS,
    DNS_NAMESPACE,
    NAMESPACE_LABEL,
    ROLE,
    ROLE_SANDBOX,
    SANDBOX,
    connected,
    host_name,
    metadata,
    selector,
    subdomain,
)
from network.render.plan import Plan

Object = dict[str, Any]
API = "cilium.io/v2"
MAX_PORTS = 40
"""Ports that one toPorts entry may hold."""
_LINK_LOCAL = parse("169.254.0.0/16")
_INERT_INGRESS: Object = {"fromEntities": ["none"]}
_INERT_EGRESS: Object = {"toEntities": ["none"]}


def render(plan: Plan) -> list[Object]:
    """The objects of one sandbox in the order to apply them, without the baseline."""
    objects: list[Object] = []
    if plan.outside is not None:
        objects.append(_policy(plan, ("base",), connected(plan.sandbox_id), _base_rules(plan, plan.outside)))
    for network in plan.networks:
        pods = selector(plan.sandbox_id, network=network)
        objects.append(_policy(plan, ("net", network), pods, {"egress": [{"toEndpoints": [_peer(plan, pods)]}]}))
    for service, verdict in plan.connected():
        rules = _sibling_rules(plan, service, verdict)
        if rules:
            pods = selector(plan.sandbox_id, service=service)
            objects.append(_policy(plan, ("svc", service), pods, {"ingress": rules}))
    for service in sorted(plan.decision.isolated):
        objects.append(_policy(plan, ("isolate", service), selector(plan.sandbox_id, service=service), _isolation()))
    if plan.ssh is not None:
        service, port = plan.ssh
        rule = {"fromEntities": ["world"], "toPorts": [{"ports": [{"port": str(port), "protocol": "TCP"}]}]}
        objects.append(_policy(plan, ("ssh",), selector(plan.sandbox_id, service=service), {"ingress": [rule]}))
    if plan.outside is not None:
        objects.append(_names_service(plan))
    return objects


def baseline(cluster: Cluster | None, namespace: str, *, node_resolver: bool = False) -> list[Object]:
    """The clusterwide object that closes every sandbox pod of a namespace, once per cluster.

    `node_resolver` leaves the address of NodeLocal DNSCache out, for a backend whose sandboxes are granted port 53
    of it by address. On Cilium a resolver is a pod (also behind a local redirect, which is resolved before policy)
    or the node, never an address: a hole would only open its other ports to whoever may reach the world.
    """
    ranges = cluster.protected_ranges() if cluster else always_protected()
    denied = []
    for net in closed_nets(ranges):
        entry: Object = {"cidr": str(net)}
        if net == _LINK_LOCAL and node_resolver:
            entry["except"] = [NODE_RESOLVER]
        denied.append(entry)
    return [
        {
            "apiVersion": API,
            "kind": "CiliumClusterwideNetworkPolicy",
            "metadata": {
                "name": f"gauntlet-baseline-{namespace}",
                "labels": {"app.kubernetes.io/managed-by": "gauntlet"},
            },
            "spec": {
                "description": "Sandbox pods start closed, and never reach metadata, nodes or the control plane.",
                "endpointSelector": {"matchLabels": {ROLE: ROLE_SANDBOX, NAMESPACE_LABEL: namespace}},
                "ingress": [dict(_INERT_INGRESS)],
                "egress": [dict(_INERT_EGRESS)],
                "egressDeny": [{"toEntities": ["kube-apiserver"]}, {"toCIDRSet": denied}],
            },
        }
    ]


def _policy(plan: Plan, parts: tuple[str, ...], pods: Object, rules: Object) -> Object:
    return {
        "apiVersion": API,
        "kind": "CiliumNetworkPolicy",
        "metadata": metadata(plan.sandbox_id, plan.namespace, *parts),
        "spec": {"endpointSelector": pods, **rules},
    }


def _peer(plan: Plan, pods: Object) -> Object:
    """The selector, pinned to this cluster where its name is known: selectors match all clusters of a mesh."""
    name = plan.cluster.cluster_name if plan.cluster else None
    if name is None:
        return pods
    return {**pods, "matchLabels": {**pods["matchLabels"], CLUSTER_LABEL: name}}


def _base_rules(plan: Plan, verdict: ServiceVerdict) -> Object:
    egress: list[Object] = [dict(_INERT_EGRESS), _dns_rule(plan, verdict)]
    if not plan.decision.has_networks:
        egress.append({"toEndpoints": [_peer(plan, connected(plan.sandbox_id))]})
    egress.extend(_outside_rules(plan, verdict))
    return {"ingress": [dict(_INERT_INGRESS)], "egress": egress}


def _dns_rule(plan: Plan, verdict: ServiceVerdict) -> Object:
    if verdict.dns == "all":
        names: list[Object] = [{"matchPattern": "*"}]
    else:
        services = [host_name(name, plan.sandbox_id, plan.namespace) for name, _ in plan.connected()]
        names = [{"matchName": name} for name in services] + [_match(name) for name in verdict.domains]
    resolvers = [_peer(plan, {"matchLabels": {NAMESPACE_LABEL: DNS_NAMESPACE, "k8s:k8s-app": app}}) for app in DNS_APPS]
    ports = [{"port": "53", "protocol": "UDP"}, {"port": "53", "protocol": "TCP"}]
    return {"toEndpoints": resolvers, "toPorts": [{"ports": ports, "rules": {"dns": names}}]}


def _match(domain: str) -> Object:
    return {"matchPattern" if "*" in domain else "matchName": domain}


def _outside_rules(plan: Plan, verdict: ServiceVerdict) -> Iterator[Object]:
    if verdict.internet == "all":
        yield {"toEntities": ["world"]}
        return
    for domain in verdict.domains:
        https = {"ports": [{"port": "443", "protocol": "TCP"}], "serverNames": [domain]}
        http = {"ports": [{"port": "80", "protocol": "TCP"}], "rules": {"http": [{"host": host_pattern(domain)}]}}
        yield {"toFQDNs": [_match(domain)], "toPorts": [https, http]}
    extra = plan.decision.egress.ports if verdict.domains else []
    for item in sorted(extra, key=lambda port: (port.domain or "", port.port, port.protocol)):
        names = [item.domain] if item.domain else list(verdict.domains)
        ports = [{"port": str(item.port), "protocol": item.protocol}]
        yield {"toFQDNs": [_match(name) for name in names], "toPorts": [{"ports": ports}]}
    if verdict.cidrs:
        entries: list[Object] = []
        for cidr in verdict.cidrs:
            closed = [str(net) for net in excepted(parse(cidr), plan.protected)]
            entries.append({"cidr": cidr, "except": closed} if closed else {"cidr": cidr})
        yield {"toCIDRSet": entries}


def host_pattern(domain: str) -> str:
    """The regular expression of the Host headers that an allowed name or pattern means."""
    text = re.escape(domain.removeprefix("**.")).replace("\\*", "[-a-z0-9_]*").replace("\\-", "-")
    return f"([-a-z0-9_]+[.])+{text}" if domain.startswith("**.") else text


def _sibling_rules(plan: Plan, service: str, verdict: ServiceVerdict) -> list[Object]:
    decision = plan.decision
    if not decision.has_networks:
        peers = [connected(plan.sandbox_id)]
    else:
        peers = [selector(plan.sandbox_id, network=name) for name in sorted(decision.joined[service])]
    if not peers:
        return []
    sources = [_peer(plan, pods) for pods in peers]
    if verdict.ports is None:
        return [{"fromEndpoints": sources}]
    echo = [{"family": "IPv4", "type": 8}, {"family": "IPv6", "type": 128}]
    return [
        {"fromEndpoints": sources, "toPorts": _port_groups(verdict.ports)},
        {"fromEndpoints": sources, "icmps": [{"fields": echo}]},
    ]


def _port_groups(ports: Sequence[Port]) -> list[Object]:
    entries = [{"port": str(port.port), "protocol": port.protocol} for port in ports]
    return [{"ports": entries[start : start + MAX_PORTS]} for start in range(0, len(entries), MAX_PORTS)]


def _isolation() -> Object:
    return {
        "ingress": [dict(_INERT_INGRESS)],
        "egress": [dict(_INERT_EGRESS)],
        "egressDeny": [{"toEntities": ["all"]}],
    }


def _names_service(plan: Plan) -> Object:
    """A headless Service, so that a pod with this subdomain and its service's name as host name has DNS."""
    meta = metadata(plan.sandbox_id, plan.namespace, "names")
    meta["name"] = subdomain(plan.sandbox_id)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {SANDBOX: plan.sandbox_id},
        },
    }
