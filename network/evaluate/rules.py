"""The neutral form of every policy object: one rule per direction, peer list and port entry.

Readers of the kinds (`cilium`, `kubernetes`, `gke`) produce rules; `flows` and `matrix` judge them.
Nothing here knows a kind.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from network.evaluate.identities import Identity
from network.evaluate.labels import Selector
from network.evaluate.names import NamePattern
from network.evaluate.reading import Reader
from network.evaluate.traffic import EVERYTHING, NOTHING, PORT_PROTOCOLS, Traffic, traffic

__all__ = [
    "ANYONE",
    "Anyone",
    "Block",
    "Direction",
    "Labelled",
    "Layer7",
    "Named",
    "Network",
    "Peer",
    "Rule",
    "read_block",
    "read_port",
]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Direction(StrEnum):
    """The direction a rule is about, seen from the pod it selects."""

    INGRESS = "ingress"
    EGRESS = "egress"


@dataclass(frozen=True)
class Labelled:
    """Whoever carries matching labels: pods by their own, entities by reserved ones."""

    selector: Selector

    def matches(self, identity: Identity) -> bool:
        """Whether the identity is this peer."""
        return self.selector.matches(identity.labels)


@dataclass(frozen=True)
class Block:
    """Addresses outside the cluster; never a pod or a node, whatever their address."""

    network: Network
    excepts: tuple[Network, ...] = ()

    def matches(self, identity: Identity) -> bool:
        """Whether the identity is an outside address of this block."""
        found = identity.address
        return found is not None and found in self.network and not any(found in hole for hole in self.excepts)


@dataclass(frozen=True)
class Named:
    """Outside addresses that a matching DNS name resolved to."""

    pattern: NamePattern

    def matches(self, identity: Identity) -> bool:
        """Whether one of the identity's names matches."""
        return identity.address is not None and any(self.pattern.matches(name) for name in identity.names)


@dataclass(frozen=True)
class Anyone:
    """Every identity there is: what a rule without a peer list means."""

    def matches(self, identity: Identity) -> bool:
        """Always."""
        return True


Peer = Labelled | Block | Named | Anyone
ANYONE = Anyone()


@dataclass(frozen=True)
class Layer7:
    """What a proxy checks beyond ports: allowed DNS queries, TLS server names, HTTP conditions."""

    dns: tuple[NamePattern, ...] | None = None
    server_names: tuple[str, ...] = ()
    http: tuple[tuple[tuple[str, str], ...], ...] | None = None

    def __bool__(self) -> bool:
        return self.dns is not None or bool(self.server_names) or self.http is not None


@dataclass(frozen=True)
class Rule:
    """One allow or deny. `peers` empty means nobody, which still isolates when `isolates` is set."""

    origin: str
    subject: Selector
    direction: Direction
    deny: bool
    isolates: bool
    peers: tuple[Peer, ...]
    traffic: Traffic
    layer7: Layer7 = Layer7()
    #: The kind of object it came from; `matrix` treats learnt names of GKE and Cilium differently.
    kind: str = ""

    @cached_property
    def _anyone(self) -> bool:
        return any(isinstance(peer, Anyone) for peer in self.peers)

    def names_peer(self, identity: Identity) -> bool:
        """Whether the identity is one of the peers."""
        return self._anyone or any(peer.matches(identity) for peer in self.peers)

    @property
    def inert(self) -> bool:
        """Whether it can match no packet at all."""
        return not self.peers or not self.traffic


def read_block(cidr: Reader, excepts: Sequence[Reader]) -> Block:
    """A CIDR and its exceptions; host bits are dropped as both policy engines do."""
    network = _network(cidr)
    holes = tuple(_network(hole) for hole in excepts)
    for reader, hole in zip(excepts, holes, strict=True):
        if hole.version != network.version or hole.prefixlen < network.prefixlen or hole[0] not in network:
            raise reader.fail(f"{hole} is not inside {network}")
    return Block(network, holes)


def _network(reader: Reader) -> Network:
    try:
        return ipaddress.ip_network(reader.text(), strict=False)
    except ValueError as error:
        raise reader.fail(f"not a CIDR: {error}") from error


def read_port(reader: Reader, number: int | None, end: int | None, protocol: str) -> Traffic:
    """One port entry. No number means every port of the protocol; `ANY` never includes ICMP."""
    if protocol not in (*PORT_PROTOCOLS, "ANY"):
        raise reader.fail(f"the evaluator does not know the protocol {protocol!r}")
    first = number or 0
    if not 0 <= first <= 65535 or (end is not None and not first <= end <= 65535):
        raise reader.fail(f"port {number} to {end} is out of range")
    return traffic(protocol, first, end)


def merged(parts: Sequence[Traffic], *, named: bool) -> Traffic:
    """The traffic of a rule: everything when it names no port entry, else the union of its entries."""
    if not named:
        return EVERYTHING
    result = NOTHING
    for part in parts:
        result |= part
    return result
