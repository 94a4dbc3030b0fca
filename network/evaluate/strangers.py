"""Whom a sandbox's rules may name at all: its own pods, the cluster's resolvers, and what is outside.

Judges the peers of every allowing rule by what they are tied to, where `invariants` tries samples: a peer that is
not tied to the own sandbox is found whoever it selects. Owns the label that ties a pod to its sandbox.
"""

from __future__ import annotations

from collections.abc import Iterator

from network.evaluate.document import Document, Service
from network.evaluate.flows import Governed
from network.evaluate.labels import NAMESPACE_KEY, NAMESPACE_LABELS_PREFIX, Requirement
from network.evaluate.rules import Anyone, Block, Direction, Labelled, Peer, Rule
from network.evaluate.traffic import traffic
from network.evaluate.view import DNS, RESOLVER_APPS, RESOLVER_NAMESPACE

__all__ = ["SANDBOX_LABEL", "SSH", "foreign_peers"]

#: The label by which a pod belongs to a sandbox, written by the platform alone.
SANDBOX_LABEL = "gauntlet.dev/sandbox-id"
#: What may come in from outside the cluster: the port of human evals.
SSH = traffic("TCP", 2222, 2222)
_NAMESPACE_KEYS = (NAMESPACE_KEY, NAMESPACE_LABELS_PREFIX + "kubernetes.io/metadata.name")
_OUTSIDE = frozenset({"world", "world-ipv4", "world-ipv6"})


def foreign_peers(document: Document, service: Service, governed: Governed) -> Iterator[str]:
    """One sentence for every peer that no rule of a sandbox may name, in one direction of one service."""
    verb = "it may connect to" if governed.direction is Direction.EGRESS else "it may be reached by"
    for rule in governed.rules:
        if rule.deny or rule.inert:
            continue
        for peer in rule.peers:
            found = _foreign(document, service, rule, peer)
            if found is not None:
                yield f"{verb} {found} ({rule.origin})"


def _foreign(document: Document, service: Service, rule: Rule, peer: Peer) -> str | None:
    """Who the peer is, when it is nobody that the rule may name."""
    inward = rule.direction is Direction.INGRESS
    if isinstance(peer, Anyone):
        return "everybody"
    if isinstance(peer, Block):
        return f"{peer.network} beside port 2222" if inward and rule.traffic - SSH else None
    if not isinstance(peer, Labelled):
        return None
    required = peer.selector.requirements
    reserved = sorted({item.key for item in required if item.source == "reserved"})
    if reserved == ["none"]:
        return None
    if len(reserved) == 1 and reserved[0] in _OUTSIDE:
        return "the world beside port 2222" if inward and rule.traffic - SSH else None
    if reserved:
        return f"the entity {', '.join(reserved)}"
    own = service.identity.labels.find("k8s", SANDBOX_LABEL)
    if _tied(required, (SANDBOX_LABEL,), {own}) and _tied(required, _NAMESPACE_KEYS, {document.namespace}):
        return None
    resolver = _tied(required, _NAMESPACE_KEYS, {RESOLVER_NAMESPACE})
    if not inward and resolver and _tied(required, ("k8s-app",), set(RESOLVER_APPS)):
        return "the cluster's resolvers beside port 53" if rule.traffic - DNS else None
    return f"pods that are not of its sandbox: {_shown(required)}"


def _tied(required: tuple[Requirement, ...], keys: tuple[str, ...], values: set[str | None]) -> bool:
    return any(
        item.operator in ("In", "Equals") and item.key in keys and set(item.values) <= values for item in required
    )


def _shown(required: tuple[Requirement, ...]) -> str:
    return ", ".join(f"{item.key} {item.operator} {' '.join(item.values)}".strip() for item in required) or "all"
