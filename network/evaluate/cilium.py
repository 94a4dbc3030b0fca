"""CiliumNetworkPolicy and CiliumClusterwideNetworkPolicy as rules.

Measured traps kept here on purpose: an empty rule `{}` and an empty peer list select nobody, a rule with
ports and no peer list selects everybody, an empty `toFQDNs` counts as no peer list, an empty `toPorts`
counts as no ports, and each rule that is present isolates its direction unless `enableDefaultDeny` says no.
Fields our renderers have no use for (nodes, services, groups, TLS, listeners) are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from network.evaluate.cilium_ports import read_name, read_ports
from network.evaluate.labels import (
    CLUSTER_KEY,
    NAMESPACE_KEY,
    NAMESPACE_LABELS_PREFIX,
    Requirement,
    Selector,
    read_selector,
)
from network.evaluate.reading import Reader
from network.evaluate.rules import (
    ANYONE,
    Direction,
    Labelled,
    Named,
    Peer,
    Rule,
    read_block,
)

__all__ = ["read_cilium"]

_OBJECT_KEYS = frozenset({"apiVersion", "kind", "metadata", "spec", "specs", "status"})
_SPEC_KEYS = frozenset(
    {"endpointSelector", "ingress", "ingressDeny", "egress", "egressDeny", "enableDefaultDeny", "description", "labels"}
)
_PEER_KEYS = {
    Direction.INGRESS: ("fromEndpoints", "fromEntities", "fromCIDR", "fromCIDRSet"),
    Direction.EGRESS: ("toEndpoints", "toEntities", "toCIDR", "toCIDRSet"),
}
_RESERVED = {
    "world": ("world", "world-ipv4", "world-ipv6"),
    "cluster": ("host", "remote-node", "init", "ingress", "health", "unmanaged", "kube-apiserver"),
}
_SINGLE = {"world-ipv4", "world-ipv6", "host", "init", "ingress", "remote-node", "health", "unmanaged", "none"}
_SINGLE |= {"kube-apiserver"}


@dataclass(frozen=True)
class _Scope:
    """Where a peer selector looks: the object's namespace (None = clusterwide) and its own cluster."""

    namespace: str | None
    cluster: str
    for_starting_pods: bool = False


def read_cilium(reader: Reader, cluster: str) -> list[Rule]:
    """The rules of one object of either kind in a cluster of that name; the clusterwide kind has no namespace."""
    reader.mapping(_OBJECT_KEYS)
    clusterwide = reader.at("kind").text() == "CiliumClusterwideNetworkPolicy"
    namespace = None if clusterwide else reader.at("metadata").at("namespace").optional_text("default")
    specs = [reader.at("spec")] if reader.has("spec") else []
    specs += list(reader.at("specs").items())
    if not specs:
        raise reader.fail("it has neither spec nor specs")
    return [rule for spec in specs for rule in _read_spec(spec, namespace, cluster)]


def _read_spec(spec: Reader, namespace: str | None, cluster: str) -> Iterator[Rule]:
    spec.mapping(_SPEC_KEYS)
    if not spec.has("endpointSelector"):
        raise spec.fail("it has no endpointSelector")
    subject = read_selector(spec.at("endpointSelector"), "any")
    starting = any(item.source == "reserved" and item.key == "init" for item in subject.requirements)
    scope = _Scope(namespace, cluster, starting)
    if namespace is not None:
        # The object's own namespace replaces one that its selector names.
        own = [
            item
            for item in subject.requirements
            if (item.source, item.key, item.operator) == ("k8s", NAMESPACE_KEY, "Equals")
        ]
        subject = subject.without(own).plus(Requirement("k8s", NAMESPACE_KEY, "Equals", (namespace,)))
    deny_default = spec.at("enableDefaultDeny")
    if deny_default.value is not None:
        deny_default.mapping(frozenset({"ingress", "egress"}))
    found = False
    for direction in Direction:
        isolates = True
        if deny_default.value is not None:
            isolates = deny_default.at(direction.value).optional_flag() is not False
        for key, deny in ((direction.value, False), (f"{direction.value}Deny", True)):
            for item in spec.at(key).items():
                found = True
                peers = _read_peers(item, direction, deny, scope)
                for traffic_part, layer7 in read_ports(item, direction, deny, peers is None):
                    yield Rule(
                        item.where, subject, direction, deny, isolates,
                        (ANYONE,) if peers is None else peers, traffic_part, layer7, "Cilium",
                    )  # fmt: skip
    if not found:
        raise spec.fail("it has no rule in any direction, which Cilium refuses")


def _read_peers(item: Reader, direction: Direction, deny: bool, scope: _Scope) -> tuple[Peer, ...] | None:
    """The peers of one rule; None when it has no peer list at all."""
    endpoints, entities, cidr, cidr_set = _PEER_KEYS[direction]
    names = "toFQDNs" if direction is Direction.EGRESS and not deny else None
    allowed = {endpoints, entities, cidr, cidr_set, "toPorts", "icmps"} | ({names} if names else set())
    item.mapping(frozenset(allowed))
    filled = [key for key in (endpoints, entities, cidr, cidr_set, names) if key and list(item.at(key).items())]
    if len(filled) > 1:
        raise item.fail(f"{filled[0]} and {filled[1]} cannot be combined in one rule")
    present = [key for key in (endpoints, entities, cidr, cidr_set) if item.has(key)]
    if not present and not (names and filled == [names]):
        return None
    if len(present) > len([key for key in filled if key != names]):
        return ()  # an empty list selects nobody, even beside a filled one
    peers: list[Peer] = []
    for reader in item.at(endpoints).items():
        peers.append(Labelled(_scoped(read_selector(reader, "any"), scope)))
    for reader in item.at(entities).items():
        peers += _read_entity(reader, scope)
    peers += [read_block(reader, ()) for reader in item.at(cidr).items()]
    for reader in item.at(cidr_set).items():
        reader.mapping(frozenset({"cidr", "except"}))
        peers.append(read_block(reader.at("cidr"), list(reader.at("except").items())))
    if names:
        peers += [Named(read_name(reader)) for reader in item.at(names).items()]
    return tuple(peers)


def _scoped(selector: Selector, scope: _Scope) -> Selector:
    """A peer selector as the agent narrows it: to its own namespace unless it names another."""
    if selector.names_reserved:
        return selector
    if not selector.names_key(NAMESPACE_KEY):
        if scope.namespace is None:
            if not scope.for_starting_pods:
                selector = selector.plus(Requirement("k8s", NAMESPACE_KEY, "Exists"))
        elif not selector.names_prefix(NAMESPACE_LABELS_PREFIX):
            selector = selector.plus(Requirement("k8s", NAMESPACE_KEY, "In", (scope.namespace,)))
    if not selector.names_key(CLUSTER_KEY):
        selector = selector.plus(Requirement("k8s", CLUSTER_KEY, "In", (scope.cluster,)))
    return selector


def _read_entity(reader: Reader, scope: _Scope) -> list[Peer]:
    name = reader.text()
    if name == "all":
        return [ANYONE]
    reserved = _RESERVED.get(name, (name,) if name in _SINGLE else ())
    if not reserved:
        raise reader.fail(f"unknown entity {name!r}")
    peers: list[Peer] = [Labelled(Selector((Requirement("reserved", key, "Exists"),))) for key in reserved]
    if name == "cluster":
        peers.append(Labelled(Selector((Requirement("k8s", CLUSTER_KEY, "In", (scope.cluster,)),))))
    return peers
