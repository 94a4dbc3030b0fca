"""CiliumNetworkPolicy and CiliumClusterwideNetworkPolicy as rules.

Measured traps kept here on purpose: an empty rule `{}` and an empty peer list select nobody, a rule with
ports and no peer list selects everybody, an empty `toFQDNs` counts as no peer list, an empty `toPorts`
counts as no ports, and each rule that is present isolates its direction unless `enableDefaultDeny` says no.
Fields our renderers have no use for (nodes, services, groups, TLS, listeners) are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from network.evaluate.labels import (
    CLUSTER_KEY,
    NAMESPACE_KEY,
    NAMESPACE_LABELS_PREFIX,
    Requirement,
    Selector,
    read_selector,
)
from network.evaluate.names import NamePattern
from network.evaluate.reading import Reader
from network.evaluate.rules import (
    ANYONE,
    Direction,
    Labelled,
    Layer7,
    Named,
    Peer,
    Rule,
    read_block,
    read_port,
)
from network.evaluate.traffic import EVERYTHING, NOTHING, Traffic, traffic

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
_ICMP_NAMES = {
    "IPv4": {"EchoReply": 0, "DestinationUnreachable": 3, "Echo": 8, "EchoRequest": 8, "TimeExceeded": 11},
    "IPv6": {"DestinationUnreachable": 1, "PacketTooBig": 2, "TimeExceeded": 3, "EchoRequest": 128, "EchoReply": 129},
}


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
                for traffic_part, layer7 in _read_ports(item, direction, deny, peers is None):
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
        peers += [Named(_read_name(reader)) for reader in item.at(names).items()]
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


def _read_name(reader: Reader) -> NamePattern:
    reader.mapping(frozenset({"matchName", "matchPattern"}))
    if reader.has("matchName") == reader.has("matchPattern"):
        raise reader.fail("expected one of matchName and matchPattern")
    key = "matchName" if reader.has("matchName") else "matchPattern"
    return NamePattern.of(reader.at(key).text(), exact=key == "matchName")


def _read_ports(item: Reader, direction: Direction, deny: bool, peerless: bool) -> Iterator[tuple[Traffic, Layer7]]:
    """The traffic of one rule, one part per port entry, since each may carry its own layer 7 rules."""
    entries, icmps = list(item.at("toPorts").items()), list(item.at("icmps").items())
    if entries and icmps:
        raise item.fail("icmps and toPorts cannot be combined in one rule")
    if not entries and not icmps:
        yield (NOTHING if peerless else EVERYTHING), Layer7()
    for entry in entries:
        allowed = {"ports"} if deny else {"ports", "rules", "serverNames"}
        entry.mapping(frozenset(allowed))
        found = NOTHING
        for port in entry.at("ports").items():
            port.mapping(frozenset({"port", "endPort", "protocol"}))
            text = port.at("port").text()
            if not text.isascii() or not text.isdigit():
                raise port.fail(f"named ports are not evaluated: {text!r}")
            end = port.at("endPort").integer() if port.has("endPort") else None
            found |= read_port(port, int(text), end or None, port.at("protocol").optional_text("ANY").upper())
        yield found, _read_layer7(entry, direction)
    for entry in icmps:
        entry.mapping(frozenset({"fields"}))
        found = NOTHING
        for field in entry.at("fields").items():
            field.mapping(frozenset({"family", "type"}))
            found |= _read_icmp(field)
        yield found, Layer7()


def _read_icmp(field: Reader) -> Traffic:
    family = field.at("family").optional_text("IPv4")
    known: Mapping[str, int] | None = _ICMP_NAMES.get(family)
    if known is None:
        raise field.fail(f"unknown family {family!r}")
    kind = field.at("type")
    number = known.get(kind.value) if isinstance(kind.value, str) else kind.integer()
    if isinstance(kind.value, str) and kind.value.isdigit():
        number = int(kind.value)
    if number is None or not 0 <= number <= 255:
        raise kind.fail(f"unknown ICMP type {kind.value!r}")
    return traffic("ICMP" if family == "IPv4" else "ICMPv6", number, number)


def _read_layer7(entry: Reader, direction: Direction) -> Layer7:
    names = tuple(item.text().lower() for item in entry.at("serverNames").items())
    if not entry.has("rules"):
        return Layer7(server_names=names)
    rules = entry.at("rules")
    rules.mapping(frozenset({"dns", "http"}))
    dns = tuple(_read_name(item) for item in rules.at("dns").items()) or None
    if dns and direction is Direction.INGRESS:
        raise rules.fail("DNS rules are for egress only")
    http = []
    for item in rules.at("http").items():
        item.mapping(frozenset({"host", "method", "path"}))
        http.append(tuple(sorted(item.text_mapping().items())))
    return Layer7(dns=dns, server_names=names, http=tuple(http) or None)
