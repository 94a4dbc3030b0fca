"""Plain NetworkPolicy objects of one sandbox, for any cluster whose network plugin enforces them.

NetworkPolicy only adds permissions to pods that some policy selects, so the first object selects all
pods of the sandbox in both directions and allows nothing. An empty rule would allow everything here
and is never written. Address rules see pods and nodes on most plugins: whatever is open outside
excepts every protected range, and all private ranges where the cluster's are not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from network.cidrs import Protected, excepted, parse
from network.cluster import NODE_RESOLVER, Cluster, closing_resolver, unknown_private
from network.model import Port, ServiceVerdict
from network.render.names import (
    DNS_APPS,
    DNS_NAMESPACE,
    ROLE,
    ROLE_SANDBOX,
    connected,
    metadata,
    selector,
)
from network.render.plan import Plan

Object = dict[str, Any]
API = "networking.k8s.io/v1"
EVERYWHERE = ("0.0.0.0/0", "::/0")
_ANY = ("TCP", "UDP", "SCTP")


def render(plan: Plan, *, addresses_see_pods: bool = True) -> list[Object]:
    """The objects of one sandbox in the order to apply them, without the baseline.

    `addresses_see_pods` False = the plugin never matches pods or nodes by address (Cilium's engine).
    """
    closed = _closed(plan, addresses_see_pods)
    objects = [_policy(plan, ("base",), selector(plan.sandbox_id), {"policyTypes": ["Ingress", "Egress"]})]
    if plan.outside is not None:
        egress = list(_egress(plan, plan.outside, closed))
        if egress:
            objects.append(_policy(plan, ("egress",), connected(plan.sandbox_id), _direction("egress", egress)))
    for network in plan.networks:
        pods = selector(plan.sandbox_id, network=network)
        rules = [{"to": [{"podSelector": pods}]}]
        objects.append(_policy(plan, ("net", network), pods, _direction("egress", rules)))
    for service, verdict in plan.connected():
        rules = _sibling_rules(plan, service, verdict)
        if rules:
            pods = selector(plan.sandbox_id, service=service)
            objects.append(_policy(plan, ("svc", service), pods, _direction("ingress", rules)))
    if plan.ssh is not None:
        objects.append(_ssh(plan, *plan.ssh, addresses_see_pods))
    return objects


def baseline(cluster: Cluster | None, namespace: str) -> list[Object]:
    """One object that closes every sandbox pod of the namespace; NetworkPolicy knows no cluster scope."""
    return [
        {
            "apiVersion": API,
            "kind": "NetworkPolicy",
            "metadata": {
                "name": "gauntlet-baseline",
                "namespace": namespace,
                "labels": {"app.kubernetes.io/managed-by": "gauntlet"},
            },
            "spec": {
                "podSelector": {"matchLabels": {ROLE: ROLE_SANDBOX}},
                "policyTypes": ["Ingress", "Egress"],
            },
        }
    ]


def _policy(plan: Plan, parts: tuple[str, ...], pods: Object, rules: Object) -> Object:
    return {
        "apiVersion": API,
        "kind": "NetworkPolicy",
        "metadata": metadata(plan.sandbox_id, plan.namespace, *parts),
        "spec": {"podSelector": pods, **rules},
    }


def _direction(direction: str, rules: list[Object]) -> Object:
    return {"policyTypes": [direction.capitalize()], direction: rules}


def _closed(plan: Plan, addresses_see_pods: bool) -> tuple[Protected, ...]:
    """The ranges that address rules except: the protected ones, and private ones where pods are unknown."""
    return (*plan.protected, *unknown_private(plan.cluster)) if addresses_see_pods else plan.protected


def block(cidr: str, closed: Iterable[Protected]) -> Object:
    """An address peer that leaves the protected ranges out."""
    net = parse(cidr)
    inner = [str(item) for item in excepted(net, closed)]
    return {"ipBlock": {"cidr": cidr, "except": inner} if inner else {"cidr": cidr}}


def _egress(plan: Plan, verdict: ServiceVerdict, closed: tuple[Protected, ...]) -> Iterator[Object]:
    if not plan.decision.has_networks:
        yield {"to": [{"podSelector": connected(plan.sandbox_id)}]}
    if verdict.dns in ("all", "listed"):
        yield dns_rule(plan.cluster)
    if verdict.internet == "all":
        yield {"to": [block(cidr, closed) for cidr in EVERYWHERE]}
    elif verdict.cidrs:
        yield {"to": [block(cidr, closed) for cidr in verdict.cidrs]}


def dns_rule(cluster: Cluster | None) -> Object:
    """The way to the cluster's resolvers; nothing here can filter the names that are asked."""
    peers: list[Object] = [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": DNS_NAMESPACE}},
            "podSelector": {"matchLabels": {"k8s-app": app}},
        }
        for app in DNS_APPS
    ]
    # Under gVisor the query to the node's resolver is an ordinary packet to this address.
    if closing_resolver(cluster) is None:
        peers.append({"ipBlock": {"cidr": NODE_RESOLVER}})
    return {"to": peers, "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]}


def _sibling_rules(plan: Plan, service: str, verdict: ServiceVerdict) -> list[Object]:
    decision = plan.decision
    if not decision.has_networks:
        peers = [connected(plan.sandbox_id)]
    else:
        peers = [selector(plan.sandbox_id, network=name) for name in sorted(decision.joined[service])]
    if not peers and verdict.ports is None:
        return []
    rule: Object = {"from": [{"podSelector": pods} for pods in peers or [selector(plan.sandbox_id, service=service)]]}
    if verdict.ports is not None:
        rule["ports"] = [entry for port in verdict.ports for entry in _ports(port)]
    return [rule]


def _ports(port: Port) -> list[Object]:
    protocols = _ANY if port.protocol == "ANY" else (port.protocol,)
    return [{"protocol": protocol, "port": port.port} for protocol in protocols]


def _ssh(plan: Plan, service: str, port: int, addresses_see_pods: bool) -> Object:
    """Ingress from outside the cluster: everywhere but pods and nodes, so that no sibling matches."""
    closed: list[Protected] = []
    if addresses_see_pods:
        ranges = plan.cluster.protected if plan.cluster else None
        named = (*ranges.pods, *ranges.nodes, *ranges.services) if ranges else ()
        closed = [*(Protected("cluster", parse(net)) for net in named), *unknown_private(plan.cluster)]
    peers = [block(cidr, closed) for cidr in EVERYWHERE]
    rule = {"from": peers, "ports": [{"protocol": "TCP", "port": port}]}
    return _policy(plan, ("ssh",), selector(plan.sandbox_id, service=service), _direction("ingress", [rule]))
