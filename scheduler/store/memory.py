"""`ControlStore` in memory: for simulation and tests. Nothing survives the process; a lock makes methods atomic."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from formats.record import State
from scheduler.errors import AttemptUnknown, NodeUnknown, QueueFull, RequestIdReused
from scheduler.model import ACTIVE, Active, Attempt, ChallengeRow, NodeRow, QueueEntry, RequestKey
from scheduler.store.port import Change, Changes, ControlStore, Order, Planner, When, check_changes, check_columns


class MemoryStore(ControlStore):
    """The in-memory adapter."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._attempts: dict[str, Attempt] = {}
        self._requests: dict[tuple[str, str], tuple[str, str]] = {}
        self._nodes: dict[str, NodeRow] = {}
        self._challenges: dict[str, ChallengeRow] = {}
        self._documents: dict[str, dict[tuple[str, str], bytes]] = {}
        self._boot_id: str | None = None
        self._seq = 0

    def close(self) -> None:
        """Nothing to let go of."""

    def adopt_clock(self, boot_id: str, steady: float) -> None:
        """Rebase."""
        with self._lock:
            if self._boot_id not in (None, boot_id):
                for name, attempt in self._attempts.items():
                    marks = {
                        column: steady
                        for column in ("started_mark", "ended_mark", "judging_until", "judging_ready_mark")
                        if getattr(attempt, column) is not None
                    }
                    self._attempts[name] = replace(attempt, queued_mark=steady, **marks)  # type: ignore[arg-type]
            self._boot_id = boot_id

    def insert_attempt(self, request: RequestKey, attempt: Attempt, max_depth: int) -> tuple[Attempt, bool]:
        """Queue."""
        with self._lock:
            known = self._known(request)
            if known is not None:
                return self._attempts[known], False
            if sum(a.state is State.QUEUED for a in self._attempts.values()) >= max_depth:
                raise QueueFull(max_depth)
            self._seq += 1
            self._attempts[attempt.attempt_id] = replace(attempt, seq=self._seq)
            self._remember(request, attempt.attempt_id)
            return self._attempts[attempt.attempt_id], True

    def attempt(self, attempt_id: str) -> Attempt | None:
        """One."""
        with self._lock:
            return self._attempts.get(attempt_id)

    def find(self, when: When, *, order: Order = "oldest", limit: int | None = None) -> list[Attempt]:
        """Filter."""
        check_columns(when)
        with self._lock:
            found = [attempt for attempt in self._attempts.values() if _holds(attempt, when)]
        found.sort(key=lambda a: (a.priority, a.seq) if order == "queue" else (0, a.seq))
        return found if limit is None else found[:limit]

    def page(
        self,
        *,
        limit: int,
        before_seq: int | None = None,
        states: Collection[State] = (),
        agent_id: str | None = None,
        challenge_id: str | None = None,
    ) -> list[Attempt]:
        """Newest first."""
        with self._lock:
            found = [
                attempt
                for attempt in self._attempts.values()
                if (before_seq is None or attempt.seq < before_seq)
                and (not states or attempt.public_state in states)
                and (agent_id is None or attempt.agent_id == agent_id)
                and (challenge_id is None or attempt.challenge_id == challenge_id)
            ]
        return sorted(found, key=lambda attempt: -attempt.seq)[:limit]

    def change(
        self,
        attempt_id: str,
        when: When,
        changes: Changes,
        request: RequestKey | None = None,
        *,
        told_again: bool = False,
    ) -> Change:
        """Compare and set."""
        check_columns(when)
        check_changes(changes)
        with self._lock:
            known = self._known(request) is not None if request is not None else False
            attempt = self._attempts.get(attempt_id)
            if attempt is None:
                raise AttemptUnknown(attempt_id)
            applied = not known and _holds(attempt, when)
            if applied:
                attempt = self._attempts[attempt_id] = replace(attempt, **changes)
            if request is not None and applied:
                self._remember(request, attempt_id)
            return Change(attempt, applied, known)

    def assign(self, planner: Planner) -> list[Attempt]:
        """Place."""
        with self._lock:
            queued = [a for a in self._attempts.values() if a.state is State.QUEUED]
            queued.sort(key=lambda attempt: (attempt.priority, attempt.seq))
            active = Active()
            for attempt in self._attempts.values():
                if attempt.state in ACTIVE:
                    active.add(attempt.agent_id, attempt.challenge_id, attempt.node_id)
            placed: dict[str, Attempt] = {}
            for choice in planner([QueueEntry(a.attempt_id, a.agent_id, a.challenge_id) for a in queued], active):
                attempt = placed.get(choice.attempt_id, self._attempts[choice.attempt_id])
                if attempt.state is not State.QUEUED:
                    raise ValueError(f"{choice.attempt_id} is not queued")
                placed[attempt.attempt_id] = replace(
                    attempt, state=State.STARTING, node_id=choice.node_id, fence=attempt.fence + 1
                )
            self._attempts.update(placed)
            return list(placed.values())

    def put_node(self, node: NodeRow) -> NodeRow:
        """Upsert."""
        with self._lock:
            before = self._nodes.get(node.node_id)
            now = replace(node, draining=before.draining if before is not None else False)
            self._nodes[node.node_id] = now
            return now

    def nodes(self) -> list[NodeRow]:
        """All."""
        with self._lock:
            return sorted(self._nodes.values(), key=lambda node: node.node_id)

    def set_draining(self, request: RequestKey, node_id: str, draining: bool) -> NodeRow:
        """Drain."""
        with self._lock:
            known = self._known(request)
            if node_id not in self._nodes:
                raise NodeUnknown(node_id)
            if known is None:
                self._nodes[node_id] = replace(self._nodes[node_id], draining=draining)
                self._remember(request, node_id)
            return self._nodes[node_id]

    def put_challenge(self, challenge: ChallengeRow) -> None:
        """Keep."""
        with self._lock:
            self._challenges.setdefault(challenge.digest, challenge)

    def challenge(self, digest: str) -> ChallengeRow | None:
        """One."""
        with self._lock:
            return self._challenges.get(digest)

    def put_documents(self, attempt_id: str, documents: Mapping[tuple[str, str], bytes]) -> None:
        """Keep."""
        with self._lock:
            self._documents[attempt_id] = dict(documents)

    def documents(self, attempt_id: str) -> dict[tuple[str, str], bytes]:
        """All."""
        with self._lock:
            return dict(self._documents.get(attempt_id, {}))

    def _known(self, request: RequestKey) -> str | None:
        entry = self._requests.get((request.principal, request.request_id))
        if entry is not None and entry[0] != request.fingerprint:
            raise RequestIdReused(request.request_id)
        return entry[1] if entry is not None else None

    def _remember(self, request: RequestKey, resource: str) -> None:
        self._requests[request.principal, request.request_id] = (request.fingerprint, resource)


def _holds(attempt: Attempt, when: Mapping[str, Any]) -> bool:
    return all(
        getattr(attempt, column) in wanted if isinstance(wanted, frozenset) else getattr(attempt, column) == wanted
        for column, wanted in when.items()
    )
