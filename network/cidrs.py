"""Address ranges: syntax, the ranges that are always protected, and how much a list covers.

Protected ranges are what no grant may open: link-local and cloud metadata always, and the networks
that a cluster file names. IPv6 forms that carry an IPv4 address (mapped, NAT64, 6to4) count as that
address, so that `::ffff:169.254.169.254` is metadata too.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
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
_EMBEDDING = (
    (ipaddress.IPv6Network("::ffff:0:0/96"), 96),
    (ipaddress.IPv6Network("64:ff9b::/96"), 96),
    (ipaddress.IPv6Network("2002::/16"), 16),
)
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


def always_protected() -> tuple[Protected, ...]:
    """The ranges that are closed without any cluster file."""
    return tuple(Protected(name, ipaddress.ip_network(net)) for name, nets in ALWAYS_PROTECTED.items() for net in nets)


def inside(net: Net, protected: Iterable[Protected]) -> Protected | None:
    """The protected range that the network equals or lies in, None without one."""
    carried = embedded(net)
    for item in protected:
        for candidate in (net, carried):
            if candidate is not None and _subnet(candidate, item.net):
                return item
    return None


def excepted(net: Net, protected: Iterable[Protected]) -> tuple[Net, ...]:
    """The protected ranges strictly inside the network, merged and sorted, for an `except` list."""
    within = [item.net for item in protected if item.net != net and _subnet(item.net, net)]
    return collapse(within)


def collapse(nets: Iterable[Net]) -> tuple[Net, ...]:
    """The same addresses in as few networks as possible, IPv4 first, sorted."""
    listed = list(nets)
    four = [net for net in listed if isinstance(net, ipaddress.IPv4Network)]
    six = [net for net in listed if isinstance(net, ipaddress.IPv6Network)]
    return (*ipaddress.collapse_addresses(four), *ipaddress.collapse_addresses(six))


def coverage(nets: Sequence[Net]) -> dict[int, int]:
    """How many addresses the networks cover together, by IP version."""
    covered = {4: 0, 6: 0}
    for net in collapse(nets):
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
