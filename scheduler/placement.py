"""Placement: which queued attempts start now, and on which node. Pure.

Round-robin over the nodes that are fresh, not draining and have room (specification: "round-robin across nodes for
load distribution"). Liveness is the registry's word, limits are `scheduler.limits`; nothing is written here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.limits import Limits, blocked_by
from scheduler.model import Active, Placement, QueueEntry


@dataclass(frozen=True)
class Candidate:
    """A node that may take attempts now, and how many it admits in all."""

    node_id: str
    capacity: int


def plan(
    queue: Sequence[QueueEntry],
    active: Active,
    nodes: Sequence[Candidate],
    limits: Limits,
    last_node: str | None = None,
) -> list[Placement]:
    """The placements to make, in the queue's order.

    `last_node` is where the previous placement went; the turn goes on behind it, by node id. `active` is counted up
    as places are taken.
    """
    ring = sorted(nodes, key=lambda node: node.node_id)
    placements: list[Placement] = []
    for entry in queue:
        if blocked_by(limits, active, entry.agent_id, entry.challenge_id) is not None:
            continue
        node = _next(ring, active, last_node)
        if node is None:
            break
        last_node = node.node_id
        active.add(entry.agent_id, entry.challenge_id, node.node_id)
        placements.append(Placement(entry.attempt_id, node.node_id))
    return placements


def _next(ring: Sequence[Candidate], active: Active, last_node: str | None) -> Candidate | None:
    behind = [node for node in ring if last_node is not None and node.node_id > last_node]
    ahead = [node for node in ring if last_node is None or node.node_id <= last_node]
    for node in (*behind, *ahead):
        if active.by_node[node.node_id] < node.capacity:
            return node
    return None
