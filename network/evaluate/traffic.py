"""Sets of traffic: which ports of which protocols, as disjoint intervals.

A rule's ports, what a direction permits and what two pods can exchange are all such sets, so that
a verdict is set arithmetic instead of a sample. Ports are 0..65535; the "port" of ICMP is its type,
0..255; `OTHER` stands for every protocol without ports that a rule can only name by naming none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

__all__ = ["EVERYTHING", "NOTHING", "PORT_PROTOCOLS", "PROTOCOLS", "Traffic", "traffic", "union"]

Interval = tuple[int, int]

#: Protocols with ports, the ones `ANY` in a port rule means.
PORT_PROTOCOLS = ("TCP", "UDP", "SCTP")
_LAST = {"TCP": 65535, "UDP": 65535, "SCTP": 65535, "ICMP": 255, "ICMPv6": 255, "OTHER": 0}
PROTOCOLS = tuple(_LAST)


def _normal(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    merged: list[Interval] = []
    for low, high in sorted(intervals):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def _intersect(left: tuple[Interval, ...], right: tuple[Interval, ...]) -> tuple[Interval, ...]:
    pairs = ((max(a, c), min(b, d)) for a, b in left for c, d in right)
    return _normal((low, high) for low, high in pairs if low <= high)


def _subtract(left: tuple[Interval, ...], right: tuple[Interval, ...]) -> tuple[Interval, ...]:
    rest = list(left)
    for low, high in right:
        rest = [
            piece for a, b in rest for piece in ((a, min(b, low - 1)), (max(a, high + 1), b)) if piece[0] <= piece[1]
        ]
    return _normal(rest)


@dataclass(frozen=True)
class Traffic:
    """An immutable set of (protocol, port) pairs."""

    parts: tuple[tuple[str, tuple[Interval, ...]], ...]

    def of(self, protocol: str) -> tuple[Interval, ...]:
        """The intervals of one protocol, empty when it has none."""
        return dict(self.parts).get(protocol, ())

    def has(self, protocol: str, port: int) -> bool:
        """Whether one packet is in the set."""
        return any(low <= port <= high for low, high in self.of(protocol))

    def __bool__(self) -> bool:
        return bool(self.parts)

    def __or__(self, other: Traffic) -> Traffic:
        if self == other or not other:
            return self
        if not self:
            return other
        return _build({name: _normal((*self.of(name), *other.of(name))) for name in PROTOCOLS})

    def __and__(self, other: Traffic) -> Traffic:
        if self == other or not self:
            return self
        return _build({name: _intersect(self.of(name), other.of(name)) for name in PROTOCOLS})

    def __sub__(self, other: Traffic) -> Traffic:
        if not self or not other:
            return self
        return _build({name: _subtract(self.of(name), other.of(name)) for name in PROTOCOLS})


def _build(parts: Mapping[str, tuple[Interval, ...]]) -> Traffic:
    return Traffic(tuple((name, parts[name]) for name in PROTOCOLS if parts.get(name)))


def traffic(protocol: str, low: int, high: int | None = None) -> Traffic:
    """The ports low..high of one protocol; `ANY` means TCP, UDP and SCTP, and never ICMP.

    Port 0 without an end means every port, as in both policy kinds.
    """
    names = PORT_PROTOCOLS if protocol == "ANY" else (protocol,)
    every = low == 0 and not high and protocol in (*PORT_PROTOCOLS, "ANY")
    return _build({name: ((0, _LAST[name]) if every else (low, high or low),) for name in names})


def union(sets: Iterable[Traffic]) -> Traffic:
    """The union of any number of sets."""
    return reduce(Traffic.__or__, sets, NOTHING)


NOTHING = Traffic(())
EVERYTHING = Traffic(tuple((name, ((0, last),)) for name, last in _LAST.items()))
