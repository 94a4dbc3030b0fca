"""The verdict matrix computed from rendered objects and pods' labels alone.

Reads grants off the same set arithmetic that decides flows, so that a rule that is shadowed by a deny,
narrowed by another object or selects the wrong pods changes the matrix and not only a flow. Holes that
grants leave out (`except`, denied ranges) are not shown, as in the matrix of a file; single flows see them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from network.evaluate.document import Document, Service, read_document
from network.evaluate.flows import Governed, govern
from network.evaluate.identities import Identity, address, pod
from network.evaluate.names import NamePattern
from network.evaluate.outside import ROOTS, Piece, inside, pieces
from network.evaluate.rules import Block, Direction, Named, Rule
from network.evaluate.traffic import NOTHING, PORT_PROTOCOLS, Traffic, traffic, union

__all__ = ["DNS", "RESOLVER_ADDRESS", "RESOLVER_APPS", "RESOLVER_NAMESPACE", "evaluate"]

#: Where a cluster's resolvers are: pods by their labels, and the node's own resolver by its address.
RESOLVER_NAMESPACE = "kube-system"
RESOLVER_APPS = ("kube-dns", "node-local-dns")
RESOLVER_ADDRESS = "169.254.20.10"
CLUSTER_DOMAIN = ".cluster.local"
DNS = traffic("UDP", 53, 53) | traffic("TCP", 53, 53)
#: In `outside_ingress`: every port is open. No file can ask for it, so it only shows a mistake.
EVERY_PORT = 0


def evaluate(document: Mapping[str, Any]) -> dict[str, Any]:
    """The matrix of what `gauntlet network render --json` printed: `{"services": {NAME: {...}}}`.

    Each service has the policy fields of the verdict model (`network.model`) except provenance. Raises
    EvaluateError for an object that cannot be judged.
    """
    read = read_document(document)
    shared: dict[Any, Governed] = {}
    views = {name: _View(read, service, shared) for name, service in read.services.items()}
    return {"services": {name: _verdict(name, views) for name in views}}


class _View:
    """One service's rules in both directions and what follows from them."""

    def __init__(self, document: Document, service: Service, shared: dict[Any, Governed]) -> None:
        self.service = service
        self.egress, self.ingress = (
            # Services that the same rules select share their verdicts.
            shared.setdefault((direction, tuple(map(id, found.rules))), found)
            for direction in (Direction.EGRESS, Direction.INGRESS)
            for found in (govern(document.rules, service.identity, direction),)
        )
        self._resolvers = [
            *(pod(RESOLVER_NAMESPACE, {"k8s-app": app}, cluster=document.cluster) for app in RESOLVER_APPS),
            address(RESOLVER_ADDRESS),
        ]

    @cached_property
    def queries(self) -> frozenset[NamePattern]:
        """The DNS names that some resolver may be asked, `*` when nothing filters them."""
        found: set[NamePattern] = set()
        for resolver in self._resolvers:
            if not self.egress.permitted(resolver) & DNS:
                continue
            for rule in self._allowing(self.egress, resolver):
                if rule.traffic & DNS:
                    # A rule without DNS conditions on the same path switches the others' off.
                    found.update(rule.layer7.dns or (NamePattern.of("*", exact=False),))
            if not self.egress.isolated:
                found.add(NamePattern.of("*", exact=False))
        return frozenset(found)

    @cached_property
    def domains(self) -> list[str]:
        """Names whose addresses can be connected to; one that cannot be asked is never learnt."""
        named = {
            peer.pattern
            for rule in self.egress.rules
            if not rule.deny and not rule.inert
            for peer in rule.peers
            if isinstance(peer, Named)
        }
        return sorted(name.text for name in named if any(asked.covers(name) for asked in self.queries))

    @cached_property
    def _open(self) -> list[Piece]:
        """The outside's pieces that can be connected to, less the way to the node's resolver."""
        found = []
        for piece in pieces(self.egress.rules):
            permitted = self.egress.permitted(piece.representative)
            if str(piece.representative.address) == RESOLVER_ADDRESS:
                permitted = permitted - DNS
            if permitted:
                found.append(piece)
        return found

    @cached_property
    def cidrs(self) -> list[str]:
        """The networks that rules grant, each with some address that can really be connected to."""
        granted = {
            peer.network
            for rule in self.egress.rules
            if not rule.deny and not rule.inert
            for peer in rule.peers
            if isinstance(peer, Block)
        }
        return sorted(
            str(network) for network in granted if any(inside(piece.network, network) for piece in self._open)
        )

    @cached_property
    def world(self) -> bool:
        """Whether whatever no rule singles out can be connected to, in both address families."""
        return {piece.network for piece in self._open} >= set(ROOTS)

    @cached_property
    def by_entity(self) -> bool:
        """Whether an entity, not only address blocks, opens whatever no rule singles out."""
        outside = [piece.representative for piece in self._open if piece.network in ROOTS]
        return any(
            peer.matches(identity)
            for rule in self.egress.rules
            if not rule.deny and not rule.inert
            for peer in rule.peers
            if not isinstance(peer, Block)
            for identity in outside
        )

    @cached_property
    def outside_ingress(self) -> list[int]:
        """TCP ports that an outside address can connect to; EVERY_PORT when all of them."""
        permitted = union(self.ingress.permitted(piece.representative) for piece in pieces(self.ingress.rules))
        if permitted.of("TCP") == ((0, 65535),):
            return [EVERY_PORT]
        return [port for low, high in permitted.of("TCP") for port in range(low, high + 1)]

    @staticmethod
    def _allowing(governed: Governed, peer: Identity) -> Iterable[Rule]:
        return (rule for rule in governed.rules if not rule.deny and not rule.inert and rule.names_peer(peer))

    def reached_from(self, sibling: _View) -> Traffic:
        """What a sibling can send to this service: let out there and let in here."""
        inward = self.ingress.permitted(sibling.service.identity)
        return inward & sibling.egress.permitted(self.service.identity) if inward else NOTHING


def _verdict(name: str, views: Mapping[str, _View]) -> dict[str, Any]:
    view = views[name]
    if view.service.offline:
        limited = view.service.limited
        ports = None if limited is None else _ports(limited)
        return _fields(view.service, dns="siblings" if view.service.hosts else "none", ports=ports)
    reaching = {other: view.reached_from(views[other]) for other in views if other != name}
    # What its own kind may send in shows the ports of a service that no sibling reaches.
    used = union(reaching.values()) | view.ingress.permitted(view.service.identity)
    dns = _dns(view)
    everything = view.world and (view.by_entity or dns == "all")
    listed = not everything and bool(view.domains or view.cidrs)
    return _fields(
        view.service,
        internet="all" if everything else "listed" if listed else "none",
        domains=view.domains if listed else [],
        cidrs=view.cidrs if listed else [],
        dns=dns,
        reachable_from=sorted(other for other, found in reaching.items() if found),
        ports=_ports(used),
        outside_ingress=view.outside_ingress,
    )


def _fields(service: Service, **found: Any) -> dict[str, Any]:
    return {
        "internet": "none",
        "domains": [],
        "cidrs": [],
        "dns": "none",
        "reachable_from": [],
        "ports": None,
        "outside_ingress": [],
        "runtime_class": service.runtime_class,
        **found,
    }


def _dns(view: _View) -> str:
    """What names mean something to the service.

    Without a way to a resolver only the names published inside the pod do. GKE's kinds cannot filter
    queries: they name domains only where a gateway of the cluster does, so that there the list holds.
    """
    if not view.queries:
        return "siblings" if view.service.hosts else "none"
    if any(asked.everything for asked in view.queries):
        gateway = any(rule.kind == "FQDNNetworkPolicy" for rule in view.egress.rules)
        return "listed" if gateway and not view.by_entity else "all"
    siblings_only = all(asked.text.endswith(CLUSTER_DOMAIN) for asked in view.queries)
    return "siblings" if siblings_only else "listed"


def _ports(used: Traffic) -> list[dict[str, Any]] | None:
    """The single ports of a limited set; None when every port is open, or none at all."""
    found = {name: used.of(name) for name in PORT_PROTOCOLS}
    if not any(found.values()) or any(intervals == ((0, 65535),) for intervals in found.values()):
        return None
    numbers = {name: {port for low, high in found[name] for port in range(low, high + 1)} for name in PORT_PROTOCOLS}
    every = set.intersection(*numbers.values())
    entries = [(port, "ANY") for port in every]
    entries += [(port, name) for name in PORT_PROTOCOLS for port in numbers[name] - every]
    return [{"port": port, "protocol": protocol} for port, protocol in sorted(entries)]
