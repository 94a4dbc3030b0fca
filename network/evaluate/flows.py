"""Verdicts on flows: what a set of policy objects lets pass, one direction at a time.

The engine's order: a direction that no isolating rule governs lets everything through; one that is
governed lets through what some rule allows; a deny, of whatever object, beats every allow. The node's own
processes (the kubelet's probes) reach a pod unless a deny says otherwise. Replies follow their connection
and are no flows here. Layer 7 conditions do not narrow these verdicts: `matrix` reads them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from network.evaluate.cilium import read_cilium
from network.evaluate.errors import EvaluateError
from network.evaluate.gke import read_fqdn_network_policy
from network.evaluate.identities import Identity
from network.evaluate.kubernetes import read_network_policy
from network.evaluate.labels import CLUSTER_NAME
from network.evaluate.reading import Reader
from network.evaluate.rules import Direction, Rule
from network.evaluate.traffic import EVERYTHING, Traffic, union

__all__ = ["POLICY_KINDS", "Decision", "Flow", "Governed", "decide", "govern", "read_objects"]

_READERS = {
    "CiliumNetworkPolicy": read_cilium,
    "CiliumClusterwideNetworkPolicy": read_cilium,
    "NetworkPolicy": read_network_policy,
    "FQDNNetworkPolicy": read_fqdn_network_policy,
}
POLICY_KINDS = frozenset(_READERS)
#: Kinds that grant and deny nothing.
_SILENT = frozenset({"Namespace", "Pod", "Service", "ConfigMap", "ServiceAccount", "RuntimeClass"})


@dataclass(frozen=True)
class Flow:
    """The first packet of a connection. For ICMP the port is the type; protocols as in `traffic`."""

    source: Identity
    destination: Identity
    protocol: str
    port: int


@dataclass(frozen=True)
class Decision:
    """Both halves of a verdict; an end that is no pod is governed by nothing here and lets all through."""

    egress: bool
    ingress: bool

    @property
    def allowed(self) -> bool:
        """Whether the packet arrives."""
        return self.egress and self.ingress


@dataclass(frozen=True)
class Governed:
    """The rules that select one pod in one direction, kept for judging many peers."""

    direction: Direction
    rules: tuple[Rule, ...]
    _judged: dict[Identity, Traffic] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def isolated(self) -> bool:
        """Whether anything not allowed is refused."""
        return any(rule.isolates for rule in self.rules)

    @cached_property
    def _active(self) -> tuple[Rule, ...]:
        return tuple(rule for rule in self.rules if not rule.inert)

    def permitted(self, peer: Identity) -> Traffic:
        """All traffic with a peer that this direction lets through."""
        found = self._judged.get(peer)
        if found is None:
            found = self._judged[peer] = self._judge(peer)
        return found

    def _judge(self, peer: Identity) -> Traffic:
        matching = [rule for rule in self._active if rule.names_peer(peer)]
        denied = union(rule.traffic for rule in matching if rule.deny)
        if not self.isolated or (self.direction is Direction.INGRESS and peer.is_host):
            return EVERYTHING - denied
        return union(rule.traffic for rule in matching if not rule.deny) - denied


def read_objects(objects: Iterable[Mapping[str, Any]], cluster: str = CLUSTER_NAME) -> list[Rule]:
    """The rules of all objects in a cluster of that name. Raises EvaluateError for one it cannot judge."""
    rules: list[Rule] = []
    for index, item in enumerate(objects):
        bare = Reader(item, f"objects[{index}]")
        kind = bare.at("kind").text()
        if kind in _SILENT:
            continue
        read = _READERS.get(kind)
        if read is None:
            raise EvaluateError(bare.where, f"the evaluator does not know the kind {kind!r}")
        name = bare.at("metadata").at("name").text()
        # A place is named by the object, which a person can find, not by its position.
        rules += read(Reader(item, f"{kind}/{name}"), cluster)
    return rules


def govern(rules: Sequence[Rule], subject: Identity, direction: Direction) -> Governed:
    """The rules among `rules` that govern one pod in one direction."""
    return Governed(
        direction,
        tuple(rule for rule in rules if rule.direction is direction and rule.subject.matches(subject.labels)),
    )


def decide(objects: Iterable[Mapping[str, Any] | Rule], flow: Flow) -> Decision:
    """Whether the objects let a flow leave its source and enter its destination.

    `objects` are policy objects as JSON, or the rules `read_objects` made of them when many flows are asked.
    """
    rules: list[Rule] = []
    for item in objects:
        rules += [item] if isinstance(item, Rule) else read_objects([item])
    return Decision(
        egress=_passes(rules, flow, Direction.EGRESS),
        ingress=_passes(rules, flow, Direction.INGRESS),
    )


def _passes(rules: Sequence[Rule], flow: Flow, direction: Direction) -> bool:
    ends = (flow.source, flow.destination)
    subject, peer = ends if direction is Direction.EGRESS else reversed(ends)
    if not subject.is_pod:
        return True
    return _permits(govern(rules, subject, direction), peer, flow)


def _permits(governed: Governed, peer: Identity, flow: Flow) -> bool:
    return governed.permitted(peer).has(flow.protocol, flow.port)
