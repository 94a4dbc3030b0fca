"""What rules that name domains really open: with a check of the name, or by address alone.

The addresses of a name serve other names too, so that a port without a check of the TLS server name or the HTTP Host
grants whatever shares an address with it. GKE's kind has no such check: a gateway of the cluster does it for the web
ports. Owns the reading of Host expressions; knows no renderer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from network.evaluate.names import NamePattern, covered
from network.evaluate.rules import Named, Rule
from network.evaluate.traffic import NOTHING, Traffic, traffic

__all__ = ["WEB", "by_name", "samples"]

TCP = traffic("TCP", 0)
#: Where a name can be checked, and so must be.
WEB = traffic("TCP", 80, 80) | traffic("TCP", 443, 443)
_TOKEN = re.compile(
    r"(?P<deep>\(\[-a-z0-9_\]\+\[\.\]\)\+)"
    r"|(?P<star>\[-a-z0-9_\]\*)"
    r"|(?P<dot>\\\.|\[\.\])"
    r"|(?P<char>[a-z0-9_-])"
)


def _named_rules(rules: Iterable[Rule]) -> Iterator[tuple[Rule, list[NamePattern]]]:
    """The rules among `rules` that allow traffic to names, each with its names."""
    for rule in rules:
        names = [peer.pattern for peer in rule.peers if isinstance(peer, Named)]
        if names and not rule.deny and not rule.inert:
            yield rule, names


def _open_by_address(rule: Rule, names: list[NamePattern]) -> Traffic:
    """The part of the rule's traffic that no check ties to its names."""
    if rule.kind == "FQDNNetworkPolicy":
        return rule.traffic - WEB
    return rule.traffic - TCP if _checked(rule, names) else rule.traffic


def _checked(rule: Rule, names: list[NamePattern]) -> bool:
    """Whether every TCP connection must show one of the names; one condition of two is enough."""
    servers = rule.layer7.server_names
    if servers and all(covered(NamePattern.of(text, exact="*" not in text), names) for text in servers):
        return True
    hosts = [_host(dict(condition).get("host", "")) for condition in rule.layer7.http or ()]
    return bool(hosts) and all(host is not None and covered(host, names) for host in hosts)


def _host(expression: str) -> NamePattern | None:
    """The name or pattern that a Host expression means; None for one that may mean more than a pattern can say."""
    text, position = "", 0
    while position < len(expression):
        token = _TOKEN.match(expression, position)
        if token is None or (token["deep"] and position):
            return None
        text += "**." if token["deep"] else "*" if token["star"] else "." if token["dot"] else token["char"]
        position = token.end()
    if not text.strip("*."):
        return None
    return NamePattern.of(text, exact="*" not in text)


def by_name(rules: Iterable[Rule]) -> dict[NamePattern, Traffic]:
    """For every name what is open to its addresses without a check, where that is anything."""
    found: dict[NamePattern, Traffic] = {}
    for rule, names in _named_rules(rules):
        unchecked = _open_by_address(rule, names)
        for name in names if unchecked else ():
            found[name] = found.get(name, NOTHING) | unchecked
    return found


def samples(rules: Iterable[Rule]) -> tuple[str, ...]:
    """One DNS name for each name or pattern that the rules allow: whoever owns it may resolve it to any address."""
    found = {re.sub(r"\*+", "x", name.text) for _, names in _named_rules(rules) for name in names}
    return tuple(sorted(found))
