"""What lies outside the cluster, as a finite set of representative addresses.

The rules of one pod mention finitely many networks, and they cut each address family into pieces within
which no rule can tell two addresses apart. One address of each piece therefore stands for all of it, and
judging those few addresses judges the whole internet, without samples and without luck.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from network.evaluate.identities import Address, Identity, address
from network.evaluate.rules import Block, Network, Rule

__all__ = ["ROOTS", "Piece", "closed_addresses", "pieces"]

#: Everything of one family; the piece of a root is what no rule singles out.
ROOTS: tuple[Network, ...] = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))


@dataclass(frozen=True)
class Piece:
    """A network less the smaller networks that rules mention, and one address of the rest."""

    network: Network
    representative: Identity


def mentioned(rules: Iterable[Rule]) -> set[Network]:
    """Every network that a rule or one of its exceptions names, and both roots."""
    found: set[Network] = set(ROOTS)
    for rule in rules:
        for peer in rule.peers:
            if isinstance(peer, Block):
                found.update((peer.network, *peer.excepts))
    return found


def pieces(rules: Sequence[Rule]) -> list[Piece]:
    """The pieces that the rules cut the outside into; a network that others tile completely has none."""
    networks = mentioned(rules)
    found = []
    for network in sorted(networks, key=lambda item: (item.version, item.prefixlen, int(item[0]))):
        inner = [item for item in networks if item != network and inside(item, network)]
        free = _first_free(network, inner)
        if free is not None:
            found.append(Piece(network, address(str(free))))
    return found


def closed_addresses(rules: Sequence[Rule], closed: Iterable[str]) -> list[tuple[Network, Address]]:
    """For every range and every part of it that rules tell apart, one address; ValueError for no CIDR."""
    ranges = [ipaddress.ip_network(text) for text in closed]
    everything = mentioned(rules)
    found = []
    for outer in ranges:
        parts = {outer, *(item for item in everything if inside(item, outer))}
        for part in sorted(parts, key=lambda item: (item.prefixlen, int(item[0]))):
            free = _first_free(part, [item for item in parts if item != part and inside(item, part)])
            if free is not None:
                found.append((outer, free))
    return found


def inside(inner: Network, outer: Network) -> bool:
    """Whether one network is part of, or equal to, another."""
    return inner.version == outer.version and inner.prefixlen >= outer.prefixlen and inner[0] in outer


def _first_free(network: Network, taken: Iterable[Network]) -> Address | None:
    """The lowest address of the network that none of the taken ones has."""
    candidate = int(network[0])
    for low, high in sorted((int(item[0]), int(item[-1])) for item in taken):
        if candidate < low:
            break
        candidate = max(candidate, high + 1)
    if candidate > int(network[-1]):
        return None
    return ipaddress.IPv4Address(candidate) if network.version == 4 else ipaddress.IPv6Address(candidate)
