"""One service's rules in both directions and the grants that follow from them, by set arithmetic.

Owns what can be read off one service alone; `matrix` puts services together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from network.evaluate.document import Document, Service
from network.evaluate.flows import Governed, govern
from network.evaluate.identities import Identity, address, pod
from network.evaluate.named import WEB, by_name
from network.evaluate.names import NamePattern, covered
from network.evaluate.outside import ROOTS, Piece, inside, pieces
from network.evaluate.rules import Block, Direction, Named, Rule
from network.evaluate.traffic import NOTHING, PORT_PROTOCOLS, Traffic, traffic, union

__all__ = ["DNS", "EVERY_PORT", "RESOLVER_ADDRESS", "RESOLVER_APPS", "RESOLVER_NAMESPACE", "View", "port_entries"]

#: Where a cluster's resolvers are: pods by their labels, and the node's own resolver by its address.
RESOLVER_NAMESPACE = "kube-system"
RESOLVER_APPS = ("kube-dns", "node-local-dns")
RESOLVER_ADDRESS = "169.254.20.10"
DNS = traffic("UDP", 53, 53) | traffic("TCP", 53, 53)
#: In `outside_ingress`: every port is open. No file can ask for it, so it only shows a mistake.
EVERY_PORT = 0


class View:
    """One service's rules in both directions and what follows from them."""

    def __init__(self, document: Document, service: Service, shared: dict[Any, Any]) -> None:
        self.service = service
        self._shared = shared
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
        asked: frozenset[NamePattern] = self._shared_egress("queries", self._find_queries)
        return asked

    def _find_queries(self) -> frozenset[NamePattern]:
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
        names: list[str] = self._shared_egress("domains", self._find_domains)
        return names

    def _find_domains(self) -> list[str]:
        named = {
            peer.pattern
            for rule in self.egress.rules
            if not rule.deny and not rule.inert
            for peer in rule.peers
            if isinstance(peer, Named)
        }
        found = {name.text for name in named if covered(name, self.queries)}
        if any(unchecked & WEB for unchecked in self.unchecked.values()):
            found.add("*")  # whatever shares an address with the name
        return sorted(found)

    @cached_property
    def unchecked(self) -> Mapping[NamePattern, Traffic]:
        """What is open to each name's addresses without a check of the name."""
        found: Mapping[NamePattern, Traffic] = self._shared_egress("unchecked", lambda: by_name(self.egress.rules))
        return found

    def _shared_egress(self, what: str, make: Callable[[], Any]) -> Any:
        """What follows from the egress rules alone, worked out once for all services that they select."""
        key = (what, id(self.egress))
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]

    @property
    def domain_ports(self) -> list[dict[str, Any]]:
        """The ports that are open to a name's addresses whatever name a connection shows."""
        return [
            {"domain": name.text, **entry}
            for name, unchecked in sorted(self.unchecked.items())
            for entry in port_entries(unchecked)
        ]

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

    def reached_from(self, sibling: View) -> Traffic:
        """What a sibling can send to this service: let out there and let in here."""
        inward = self.ingress.permitted(sibling.service.identity)
        return inward & sibling.egress.permitted(self.service.identity) if inward else NOTHING


def port_entries(used: Traffic) -> list[dict[str, Any]]:
    """Its ports one by one, EVERY_PORT where a protocol has all of them; ICMP has none."""
    found = {name: used.of(name) for name in PORT_PROTOCOLS}
    found = {name: ((0, 0),) if intervals == ((0, 65535),) else intervals for name, intervals in found.items()}
    numbers = {name: {port for low, high in found[name] for port in range(low, high + 1)} for name in PORT_PROTOCOLS}
    every = set.intersection(*numbers.values())
    entries = [(port, "ANY") for port in every]
    entries += [(port, name) for name in PORT_PROTOCOLS for port in numbers[name] - every]
    return [{"port": port, "protocol": protocol} for port, protocol in sorted(entries)]
