"""The nodes: what they say of themselves, whether they live, which may take attempts.

Endpoints, capacity and draining are kept; liveness is observed anew in every life of the scheduler. A node is alive
while its stream is open or a heartbeat is younger than its lease: a late heartbeat alone is not death, since a busy
agent could bring that about. It is lost after one lease and one tick of neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import structlog
from gauntlet.scheduler.v1 import scheduler_service_pb2 as scheduler_pb

from scheduler.attempts import Bells
from scheduler.clock import Clock
from scheduler.daemon_port import Connect, DaemonClient
from scheduler.errors import NodeUnknown
from scheduler.model import NodeRow, RequestKey
from scheduler.placement import Candidate
from scheduler.store.port import ControlStore
from scheduler.store.threaded import StoreThread

log = structlog.get_logger(__name__)


@dataclass
class Node:
    """One node now. Marks are readings of the steady clock; `alive_mark` is when it was last known to live."""

    row: NodeRow
    client: DaemonClient
    alive_mark: float
    heartbeat_mark: float | None = None
    heartbeat_ns: int | None = None
    running: int = 0
    pools: list[scheduler_pb.PoolState] = field(default_factory=list)
    stacks: frozenset[str] = frozenset()
    connected: bool = False
    rest_until: float = 0.0


class Nodes:
    """The registry. `joined` is called with a node's id when it is new or moved, so that it is observed."""

    def __init__(
        self,
        store: ControlStore,
        thread: StoreThread,
        clock: Clock,
        connect: Connect,
        bells: Bells,
        *,
        lease_seconds: float,
        tick_seconds: float,
        stale_seconds: float,
    ) -> None:
        self._store = store
        self._thread = thread
        self._clock = clock
        self._connect = connect
        self._bells = bells
        self._lost_after = lease_seconds + tick_seconds
        self._stale_after = stale_seconds
        self._nodes: dict[str, Node] = {}
        self._retired: list[DaemonClient] = []
        self.joined: Callable[[str], None] = lambda node_id: None

    async def load(self) -> None:
        """Know again the nodes of an earlier life; each has a whole lease to show itself."""
        for row in await self._thread.run(self._store.nodes):
            self._keep(row)

    async def heartbeat(
        self, row: NodeRow, running: int, pools: list[scheduler_pb.PoolState], stacks: Iterable[str] = ()
    ) -> NodeRow:
        """Take a node's report; the node as it is kept."""
        known = self._nodes.get(row.node_id)
        if known is None or _reported(known.row) != _reported(row):
            self._keep(await self._thread.run(self._store.put_node, row))
        node = self._nodes[row.node_id]
        node.heartbeat_mark = node.alive_mark = self._clock.steady()
        node.heartbeat_ns = self._clock.wall_ns()
        node.running, node.pools, node.stacks = running, pools, frozenset(stacks)
        self._bells.queue.ring()
        return node.row

    def stacks(self) -> frozenset[str] | None:
        """Every stack that some node offers; None while a node is known that has not said what it offers."""
        nodes = list(self._nodes.values())
        if not nodes or not all(node.stacks for node in nodes):
            return None
        return frozenset[str]().union(*(node.stacks for node in nodes))

    async def set_draining(self, request: RequestKey, node_id: str, draining: bool) -> Node:
        """Drain or undrain. Raises NodeUnknown, RequestIdReused."""
        row = await self._thread.run(self._store.set_draining, request, node_id, draining)
        node = self.get(node_id)
        node.row = row
        self._bells.queue.ring()
        return node

    def get(self, node_id: str) -> Node:
        """One node. Raises NodeUnknown."""
        node = self._nodes.get(node_id)
        if node is None:
            raise NodeUnknown(node_id)
        return node

    def known(self, node_id: str | None) -> Node | None:
        """One node, or None."""
        return self._nodes.get(node_id) if node_id is not None else None

    def all(self) -> list[Node]:
        """Every node, by id."""
        return [self._nodes[name] for name in sorted(self._nodes)]

    def connection(self, node_id: str, up: bool) -> None:
        """The node's stream opened or ended; both mean that it lived until now."""
        node = self.get(node_id)
        if up or node.connected:
            node.alive_mark = self._clock.steady()
        node.connected = up
        if up:
            node.rest_until = 0.0
            self._bells.queue.ring()
            self._bells.orders.ring()

    def rest(self, node_id: str, seconds: float) -> None:
        """Place nothing on a node for a while: it just refused, or did not answer."""
        self.get(node_id).rest_until = self._clock.steady() + seconds

    def stale(self, node: Node) -> bool:
        """Whether the node's heartbeat is overdue."""
        mark = node.heartbeat_mark
        return mark is None or self._clock.steady() - mark > self._stale_after

    def candidates(self) -> list[Candidate]:
        """The nodes that may take an attempt now."""
        now = self._clock.steady()
        return [
            Candidate(node.row.node_id, node.row.capacity)
            for node in self._nodes.values()
            if not node.row.draining and node.rest_until <= now and (node.connected or not self.stale(node))
        ]

    def lost(self) -> list[tuple[str, float]]:
        """The nodes that are lost, with the seconds since they were last known to live."""
        now = self._clock.steady()
        return [
            (node.row.node_id, now - node.alive_mark)
            for node in self._nodes.values()
            if not node.connected and now - node.alive_mark > self._lost_after
        ]

    async def close(self) -> None:
        """Close every connection."""
        for client in (*self._retired, *(node.client for node in self._nodes.values())):
            await client.close()

    def _keep(self, row: NodeRow) -> None:
        known = self._nodes.get(row.node_id)
        if known is not None and known.row.endpoint == row.endpoint:
            known.row = row
            return
        node = Node(row=row, client=self._connect(row.endpoint), alive_mark=self._clock.steady())
        self._nodes[row.node_id] = node
        if known is not None:
            # Not closed yet: that would cancel the claims which still wait for its answer.
            self._retired.append(known.client)
        log.info("node_joined", node_id=row.node_id, endpoint=row.endpoint, capacity=row.capacity)
        self.joined(row.node_id)


def _reported(row: NodeRow) -> tuple[object, ...]:
    """What a node says of itself; draining is the operator's word."""
    return (row.endpoint, row.agent_endpoint, row.capacity, row.boot_id)
