"""GKE's FQDNNetworkPolicy (networking.gke.io/v1alpha1) as rules.

The kind has no public definition; this is its documented form: egress by DNS name or pattern and port,
added to what NetworkPolicies allow. It is not counted as isolating the pods it selects: whether it does is
not documented, and a checker that relied on it could call an open pod closed.
"""

from __future__ import annotations

from network.evaluate.labels import NAMESPACE_KEY, Requirement, read_selector
from network.evaluate.names import NamePattern
from network.evaluate.reading import Reader
from network.evaluate.rules import Direction, Named, Peer, Rule, merged, read_port

__all__ = ["read_fqdn_network_policy"]

_OBJECT_KEYS = frozenset({"apiVersion", "kind", "metadata", "spec"})


def read_fqdn_network_policy(reader: Reader, cluster: str) -> list[Rule]:
    """The rules of one FQDNNetworkPolicy; it names no pods as peers, so the cluster does not matter."""
    reader.mapping(_OBJECT_KEYS)
    namespace = reader.at("metadata").at("namespace").optional_text("default")
    spec = reader.at("spec")
    spec.mapping(frozenset({"podSelector", "egress"}))
    subject = read_selector(spec.at("podSelector"), "k8s").plus(Requirement("k8s", NAMESPACE_KEY, "In", (namespace,)))
    rules = []
    for item in spec.at("egress").items():
        item.mapping(frozenset({"matches", "ports"}))
        peers: list[Peer] = [Named(_read_match(match)) for match in item.at("matches").items()]
        if not peers:
            raise item.fail("it names no domain")
        parts = []
        for port in item.at("ports").items():
            port.mapping(frozenset({"port", "protocol"}))
            number = port.at("port").integer() if port.has("port") else None
            parts.append(read_port(port, number, None, port.at("protocol").optional_text("TCP").upper()))
        found = merged(parts, named=bool(parts))
        rules.append(
            Rule(item.where, subject, Direction.EGRESS, False, False, tuple(peers), found, kind="FQDNNetworkPolicy")
        )
    return rules


def _read_match(match: Reader) -> NamePattern:
    match.mapping(frozenset({"name", "pattern"}))
    if match.has("name") == match.has("pattern"):
        raise match.fail("expected one of name and pattern")
    key = "name" if match.has("name") else "pattern"
    return NamePattern.of(match.at(key).text(), exact=key == "name")
