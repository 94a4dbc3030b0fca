"""Ports, ICMP types and layer 7 conditions of one Cilium rule.

A rule without any of them means all traffic with its peers, ICMP included; one with ports never means ICMP. An
entry without ports, unlike no entries at all, means nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from network.evaluate.names import NamePattern
from network.evaluate.reading import Reader
from network.evaluate.rules import Direction, Layer7, read_port
from network.evaluate.traffic import EVERYTHING, NOTHING, Traffic, traffic

__all__ = ["read_name", "read_ports"]

_ICMP_NAMES = {
    "IPv4": {"EchoReply": 0, "DestinationUnreachable": 3, "Echo": 8, "EchoRequest": 8, "TimeExceeded": 11},
    "IPv6": {"DestinationUnreachable": 1, "PacketTooBig": 2, "TimeExceeded": 3, "EchoRequest": 128, "EchoReply": 129},
}


def read_name(reader: Reader) -> NamePattern:
    """A matchName or matchPattern, of toFQDNs or of a DNS rule."""
    reader.mapping(frozenset({"matchName", "matchPattern"}))
    if reader.has("matchName") == reader.has("matchPattern"):
        raise reader.fail("expected one of matchName and matchPattern")
    key = "matchName" if reader.has("matchName") else "matchPattern"
    return NamePattern.of(reader.at(key).text(), exact=key == "matchName")


def read_ports(item: Reader, direction: Direction, deny: bool, peerless: bool) -> Iterator[tuple[Traffic, Layer7]]:
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
            if not text.isascii() or not text.isdigit() or text != str(int(text)):
                # A leading zero would be read as octal by the engine.
                raise port.fail(f"only plain port numbers are evaluated, no named ports: {text!r}")
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
    dns = tuple(read_name(item) for item in rules.at("dns").items()) or None
    if dns and direction is Direction.INGRESS:
        raise rules.fail("DNS rules are for egress only")
    http = []
    for item in rules.at("http").items():
        item.mapping(frozenset({"host", "method", "path"}))
        http.append(tuple(sorted(item.text_mapping().items())))
    return Layer7(dns=dns, server_names=names, http=tuple(http) or None)
