"""Address ranges: syntax, the ranges that are always protected, and how much a list covers.

Protected ranges are what no grant may open: link-local and cloud metadata always, and the networks
that a cluster file names. IPv6 forms that carry an IPv4 address (mapped, NAT64, 6to4) count as that
address, so that `::ffff:169.254.169.254` is metadata too.
"""

from __future__ import annotations

import ipaddress
import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

Net = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Ranges closed for every sandbox, with or without a cluster file.
ALWAYS_PROTECTED: Mapping[str, tuple[str, ...]] = {
    "link-local and metadata": ("169.254.0.0/16", "fe80::/10"),
    "cloud metadata": (
        "168.63.129.16/32",  # Azure's wire server
        "100.100.100.200/32",  # Alibaba
        "fd00:ec2::23/128",  # EKS Pod Identity
        "fd00:ec2::254/128",  # EC2
        "fd20:ce::254/128",  # Google
    ),
}
#: Ranges that pods, nodes and services usually have; closed where a cluster file does not say which.
PRIVATE: tuple[str, ...] = (
    "10.0.0.0/8",
    "100.64.0.0/10",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "fc00::/7",
)
_PREFIX = re.compile(r"[^/%]+(/[0-9]{1,3})?")
_EVERY_4 = ipaddress.IPv4Network("0.0.0.0/0")
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_CARRIED = ((ipaddress.IPv6Network("64:ff9b::/96"), 96), (ipaddress.IPv6Network("2002::/16"), 16))
_EMBEDDING = ((_MAPPED, 96), *_CARRIED)
#: A list that covers this many addresses is broad: a /8, or a /32 of IPv6.
BROAD = {4: 1 << 24, 6: 1 << 96}
#: ... and this many is the internet: a sixteenth of IPv4, or of IPv6's global unicast space.
INTERNET = {4: 1 << 28, 6: 1 << 121}


class CidrError(ValueError):
    """An entry that is no network; the message says why, `fix` what to write."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Protected:
    """A protected network and the name of the range it belongs to (`metadata`, `vpc`, `pods` ...)."""

    name: str
    net: Net


def parse(entry: str) -> Net:
    """The network; a single address is one of its own. CidrError when it is none or has host bits set."""
    example = "write a network such as 203.0.113.0/24"
    if not _PREFIX.fullmatch(entry):
        raise CidrError("not an address range", example)
    try:
        return ipaddress.ip_network(entry, strict=True)
    except ValueError:
        pass
    try:
        loose = ipaddress.ip_network(entry, strict=False)
    except ValueError as error:
        raise CidrError("not an address range", example) from error
    raise CidrError(f"host bits are set; the network is really {loose}", f"write {loose} if you mean all of it")


def embedded(net: Net) -> Net | None:
    """The IPv4 network that an IPv6 network's addresses carry, None when they carry none."""
    if net.version == 4:
        return None
    for prefix, bits in _EMBEDDING:
        length = net.prefixlen - bits
        if net.subnet_of(prefix) and 0 <= length <= 32:
            value = (int(net.network_address) >> (96 - bits)) & 0xFFFFFFFF
            return ipaddress.ip_network((value, length))
        if net.subnet_of(prefix):  # longer than the carried address (6to4)
            value = (int(net.network_address) >> (96 - bits)) & 0xFFFFFFFF
            return ipaddress.ip_network((value, 32))
    return None


def mapped(net: Net) -> Net | None:
    """The IPv4 network that an IPv4-mapped one writes, None for any other: such addresses are on no wire."""
    if isinstance(net, ipaddress.IPv6Network) and net.subnet_of(_MAPPED):
        return embedded(net)
    return None


def whole_family(protected: Iterable[Protected]) -> int | None:
    """The IP version of which the ranges leave no address, None without one."""
    return next((net.version for net in closed_nets(tuple(protected)) if net.prefixlen == 0), None)


def always_protected() -> tuple[Protected, ...]:
    """The ranges that are closed without any cluster file."""
    return tuple(Protected(name, ipaddress.ip_network(net)) for name, nets in ALWAYS_PROTECTED.items() for net in nets)


def inside(net: Net, protected: Iterable[Protected]) -> Protected | None:
    """The protected range that the network equals or lies in, None without one.

    Ranges count together: what several cover between them is one range with all their names.
    """
    ranges = tuple(protected)
    for candidate in (net, embedded(net)):
        closed = None if candidate is None else _index(ranges).holding(candidate)
        if candidate is None or closed is None:
            continue
        single = next((item for item in ranges if _subnet(candidate, item.net)), None)
        if single is not None:
            return single
        parts = dict.fromkeys(item.name for item in ranges if _subnet(item.net, candidate))
        return Protected(" and ".join(parts) or "in another form", closed)
    return None


def excepted(net: Net, protected: Iterable[Protected]) -> tuple[Net, ...]:
    """The protected ranges strictly inside the network, merged and sorted, for an `except` list.

    IPv6 networks that carry protected IPv4 addresses count. ValueError when nothing of the network would be left.
    """
    index = _index(tuple(protected))
    if index.holding(net) is not None:
        raise ValueError(f"{net} is protected as a whole")
    return index.between(net)


class _Index:
    """Sorted networks without overlaps, found by their first address."""

    def __init__(self, nets: Iterable[Net]) -> None:
        self.nets = tuple(nets)
        self._same = {version: [net for net in self.nets if net.version == version] for version in (4, 6)}
        self._starts = {version: [_start(net) for net in same] for version, same in self._same.items()}

    def holding(self, net: Net) -> Net | None:
        """The one that the network equals or lies in."""
        index = bisect_right(self._starts[net.version], _start(net)) - 1
        found = self._same[net.version][index] if index >= 0 else None
        return found if found is not None and _subnet(net, found) else None

    def between(self, net: Net) -> tuple[Net, ...]:
        """Those that begin inside the network."""
        starts = self._starts[net.version]
        low = bisect_left(starts, _start(net))
        return tuple(self._same[net.version][low : bisect_right(starts, int(net.broadcast_address), lo=low)])


#: The last lists of ranges and what they come to. One list is asked about thousands of times, and comparing two
#: long ones costs as much as what is to be saved: the same list is the same object.
_KEPT: deque[tuple[tuple[Protected, ...], _Index]] = deque(maxlen=8)


def _index(protected: tuple[Protected, ...]) -> _Index:
    for ranges, known in tuple(_KEPT):
        if ranges is protected:
            return known
    plain = [item.net for item in protected]
    found = _Index(collapse([*plain, *(form for net in plain for form in _carriers(net))]))
    _KEPT.append((protected, found))
    return found


def closed_nets(protected: tuple[Protected, ...]) -> tuple[Net, ...]:
    """Everything that is protected in as few networks as possible, IPv4 first, sorted.

    With each IPv4 range go the IPv6 networks whose packets a NAT64 or 6to4 gateway sends on to it.
    """
    return _index(protected).nets


def _carriers(net: Net) -> Iterator[Net]:
    """The IPv6 networks that carry an IPv4 network's addresses on the wire."""
    for prefix, bits in _CARRIED if net.version == 4 else ():
        value = int(prefix.network_address) + (int(net.network_address) << (96 - bits))
        yield ipaddress.IPv6Network((value, bits + net.prefixlen))


def _start(net: Net) -> int:
    return int(net.network_address)


def collapse(nets: Iterable[Net]) -> tuple[Net, ...]:
    """The same addresses in as few networks as possible, IPv4 first, sorted."""
    listed = list(nets)
    four = [net for net in listed if isinstance(net, ipaddress.IPv4Network)]
    six = [net for net in listed if isinstance(net, ipaddress.IPv6Network)]
    return (*ipaddress.collapse_addresses(four), *ipaddress.collapse_addresses(six))


def coverage(nets: Sequence[Net]) -> dict[int, int]:
    """How many addresses the networks cover together, by IP version; carried IPv4 addresses count as such."""
    covered = {4: 0, 6: 0}
    carried = [
        embedded(net) or (_EVERY_4 if any(_subnet(form, net) for form, _ in _EMBEDDING) else None) for net in nets
    ]
    for net in collapse([*nets, *(net for net in carried if net is not None)]):
        covered[net.version] += net.num_addresses
    return covered


def reaches(nets: Sequence[Net], limit: Mapping[int, int]) -> bool:
    """Whether together they cover at least `limit[version]` addresses of some IP version."""
    covered = coverage(nets)
    return any(covered[version] >= limit[version] for version in (4, 6))


def _subnet(inner: Net, outer: Net) -> bool:
    if isinstance(inner, ipaddress.IPv4Network):
        return isinstance(outer, ipaddress.IPv4Network) and inner.subnet_of(outer)
    return isinstance(outer, ipaddress.IPv6Network) and inner.subnet_of(outer)
