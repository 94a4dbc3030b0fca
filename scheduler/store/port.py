"""The port `ControlStore`: everything the scheduler promised, one transaction a method.

Blocking; the event loop reaches it through `store.threaded`. Attempts change only by compare-and-set: `change` names
what must hold (`when`) and what becomes of it, so that a late or doubled step does nothing. A request id is kept in
the same transaction as its effect.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from formats.record import State
from scheduler.model import Active, Attempt, ChallengeRow, NodeRow, Placement, QueueEntry, RequestKey

# Column → the value it must have, or a frozenset of values of which it must have one.
When = Mapping[str, Any]
Changes = Mapping[str, Any]
Planner = Callable[[Sequence[QueueEntry], Active], Sequence[Placement]]
Order = Literal["queue", "oldest"]
COLUMNS = frozenset(field.name for field in fields(Attempt))
_FIXED = frozenset({"seq", "attempt_id"})


@dataclass(frozen=True)
class Change:
    """What `change` did: the attempt as it now is, whether `when` held, whether the request was known already."""

    attempt: Attempt
    applied: bool
    repeated: bool = False


class ControlStore(ABC):
    """Durable state of the scheduler. Every method is atomic and, once it returned, survives a kill."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the database."""

    @abstractmethod
    def adopt_clock(self, boot_id: str, steady: float) -> None:
        """Rebase every kept reading of the steady clock to `steady` when it stems from another boot.

        Waiting and running times begin anew, judging leases end. Nothing happens within the same boot.
        """

    @abstractmethod
    def insert_attempt(self, request: RequestKey, attempt: Attempt, max_depth: int) -> tuple[Attempt, bool]:
        """Queue an attempt; (the attempt, whether this call made it). `seq` is assigned.

        Raises RequestIdReused, and QueueFull when `max_depth` attempts are queued.
        """

    @abstractmethod
    def attempt(self, attempt_id: str) -> Attempt | None:
        """One attempt."""

    @abstractmethod
    def find(self, when: When, *, order: Order = "oldest", limit: int | None = None) -> list[Attempt]:
        """The attempts for which `when` holds; `queue` orders by priority, then age."""

    @abstractmethod
    def page(
        self,
        *,
        limit: int,
        before_seq: int | None = None,
        states: Collection[State] = (),
        agent_id: str | None = None,
        challenge_id: str | None = None,
    ) -> list[Attempt]:
        """Attempts newest first, below `before_seq`; `states` are public states (`Attempt.public_state`)."""

    @abstractmethod
    def change(
        self,
        attempt_id: str,
        when: When,
        changes: Changes,
        request: RequestKey | None = None,
        *,
        told_again: bool = False,
    ) -> Change:
        """Apply `changes` (none is allowed) if `when` holds, and then keep `request` as answered.

        A known `request` changes nothing again, one whose `when` did not hold is not kept. A change that somebody will
        tell again (`told_again`) survives a kill like every other, but does not wait for the disk.

        Raises AttemptUnknown, RequestIdReused, KeyError for a column that does not exist.
        """

    @abstractmethod
    def assign(self, planner: Planner) -> list[Attempt]:
        """Let `planner` choose from the queue and the places taken, and make its placements STARTING.

        Reading and placing are one transaction. A placement gives the attempt its node and the next fence.
        """

    @abstractmethod
    def put_node(self, node: NodeRow) -> NodeRow:
        """Insert or update a node; its `draining` stays as the operator set it. Returns it as it now is."""

    @abstractmethod
    def nodes(self) -> list[NodeRow]:
        """Every node, by id."""

    @abstractmethod
    def set_draining(self, request: RequestKey, node_id: str, draining: bool) -> NodeRow:
        """Drain or undrain. Raises NodeUnknown, RequestIdReused."""

    @abstractmethod
    def put_challenge(self, challenge: ChallengeRow) -> None:
        """Keep a challenge; one that is there already stays as it is."""

    @abstractmethod
    def challenge(self, digest: str) -> ChallengeRow | None:
        """One challenge."""

    @abstractmethod
    def put_documents(self, attempt_id: str, documents: Mapping[tuple[str, str], bytes]) -> None:
        """Keep the judges' output documents by (judge, file name), in place of what there was."""

    @abstractmethod
    def documents(self, attempt_id: str) -> dict[tuple[str, str], bytes]:
        """The judges' output documents of an attempt."""


def check_columns(names: Collection[str]) -> None:
    """Raise KeyError for a name that is no column of an attempt."""
    unknown = sorted(set(names) - COLUMNS)
    if unknown:
        raise KeyError(f"an attempt has no column {', '.join(unknown)}")


def check_changes(names: Collection[str]) -> None:
    """Raise KeyError for a name that is no column, or one that never changes."""
    check_columns(names)
    if not _FIXED.isdisjoint(names):
        raise KeyError(f"{', '.join(sorted(_FIXED & set(names)))} never changes")
