"""Kubernetes NetworkPolicy as rules.

It differs from Cilium's kinds in its empty forms: here an empty rule `{}` or an absent peer list means
everybody, and a policy type without rules isolates that direction. Only allows exist. Under Cilium (and
GKE's Dataplane V2) an ipBlock means addresses outside the cluster, never pods.
"""

from __future__ import annotations

from collections.abc import Iterator

from network.evaluate.labels import (
    CLUSTER_KEY,
    NAMESPACE_KEY,
    NAMESPACE_LABELS_PREFIX,
    Requirement,
    Selector,
    read_selector,
)
from network.evaluate.reading import Reader
from network.evaluate.rules import ANYONE, Direction, Labelled, Peer, Rule, merged, read_block, read_port
from network.evaluate.traffic import EVERYTHING, Traffic

__all__ = ["read_network_policy"]

_OBJECT_KEYS = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
_SPEC_KEYS = frozenset({"podSelector", "policyTypes", "ingress", "egress"})
_TYPES = {"Ingress": Direction.INGRESS, "Egress": Direction.EGRESS}
_PEERS = {Direction.INGRESS: "from", Direction.EGRESS: "to"}


def read_network_policy(reader: Reader, cluster: str) -> list[Rule]:
    """The rules of one NetworkPolicy in a cluster of that name."""
    reader.mapping(_OBJECT_KEYS)
    namespace = reader.at("metadata").at("namespace").optional_text("default")
    spec = reader.at("spec")
    spec.mapping(_SPEC_KEYS)
    subject = read_selector(spec.at("podSelector"), "k8s").plus(_in_namespace(namespace))
    rules: list[Rule] = []
    types = _policy_types(spec)
    for direction in Direction:
        items = list(spec.at(direction.value).items())
        if direction not in types:
            if items:
                raise spec.fail(f"it has {direction.value} rules but policyTypes leaves that direction out")
            continue
        if not items:
            rules.append(Rule(spec.where, subject, direction, False, True, (), EVERYTHING, kind="NetworkPolicy"))
        for item in items:
            peers_key = _PEERS[direction]
            item.mapping(frozenset({peers_key, "ports"}))
            peers = tuple(_read_peer(peer, namespace, cluster) for peer in item.at(peers_key).items())
            parts = list(_read_ports(item.at("ports")))
            found = merged(parts, named=bool(parts))
            rules.append(
                Rule(item.where, subject, direction, False, True, peers or (ANYONE,), found, kind="NetworkPolicy")
            )
    return rules


def _policy_types(spec: Reader) -> set[Direction]:
    """The directions it governs; without policyTypes always ingress, and egress when it has such rules."""
    if not spec.has("policyTypes"):
        return {Direction.INGRESS, *([Direction.EGRESS] if list(spec.at("egress").items()) else [])}
    found = set()
    for item in spec.at("policyTypes").items():
        direction = _TYPES.get(item.text())
        if direction is None:
            raise item.fail(f"unknown policy type {item.value!r}")
        found.add(direction)
    return found


def _in_namespace(namespace: str) -> Requirement:
    return Requirement("k8s", NAMESPACE_KEY, "In", (namespace,))


def _read_peer(peer: Reader, namespace: str, cluster: str) -> Peer:
    peer.mapping(frozenset({"ipBlock", "podSelector", "namespaceSelector"}))
    if peer.has("ipBlock"):
        block = peer.at("ipBlock")
        block.mapping(frozenset({"cidr", "except"}))
        if peer.has("podSelector") or peer.has("namespaceSelector"):
            raise peer.fail("ipBlock cannot be combined with a selector")
        return read_block(block.at("cidr"), list(block.at("except").items()))
    if not peer.has("podSelector") and not peer.has("namespaceSelector"):
        raise peer.fail("an empty peer, which Kubernetes refuses")
    selector = Selector(())
    if peer.has("podSelector"):
        selector = read_selector(peer.at("podSelector"), "k8s")
    if not selector.names_key(CLUSTER_KEY):
        selector = selector.plus(Requirement("k8s", CLUSTER_KEY, "In", (cluster,)))
    if not peer.has("namespaceSelector"):
        return Labelled(selector.plus(_in_namespace(namespace)))
    spaces = read_selector(peer.at("namespaceSelector"), "k8s", NAMESPACE_LABELS_PREFIX)
    if not spaces.requirements:
        return Labelled(selector.plus(Requirement("k8s", NAMESPACE_KEY, "Exists")))
    return Labelled(selector.plus(*spaces.requirements))


def _read_ports(ports: Reader) -> Iterator[Traffic]:
    for port in ports.items():
        port.mapping(frozenset({"port", "endPort", "protocol"}))
        number = port.at("port").integer() if port.has("port") else None
        end = port.at("endPort").integer() if port.has("endPort") else None
        yield read_port(port, number, end, port.at("protocol").optional_text("TCP").upper())
