"""What the scheduler keeps: attempts, nodes, challenges. Values only; how they change is the other modules' work.

Field names equal column names in the control database. Times that end in `_ns` are wall clock for records; `*_mark`
and `*_until` are readings of the steady clock (`scheduler.clock`), which alone decides deadlines.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum

from formats.record import Fault, Flag, Outcome, State

FINAL = frozenset({State.SCORED, State.VOIDED, State.FAILED})
# States in which an attempt takes a place under the limits: it has, or is getting, an agent's sandbox.
ACTIVE = frozenset({State.STARTING, State.RUNNING})


class Priority(IntEnum):
    """Order in the queue, lowest first."""

    BOUT = 1
    PRACTICE = 2
    RERUN = 3


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt as the control database holds it.

    `report` is the last serialized `gauntlet.daemon.v1.SandboxAttempt` that mattered (RUNNING, then FROZEN or LOST);
    `results` the judges' results as `judging.pack_results` writes them. `fence` grows by one with every placement.
    `network_json` and `network_digest` are its challenge's (`ChallengeRow`).
    """

    attempt_id: str
    challenge_id: str
    challenge_digest: str
    agent_id: str
    priority: Priority
    supersedes: str | None = None
    created_ns: int
    seq: int = 0
    state: State = State.QUEUED
    outcome: Outcome | None = None
    fault: Fault | None = None
    flags: tuple[Flag, ...] = ()
    reason: str | None = None
    exit_reason: str | None = None
    agent_feedback: str | None = None
    cancel_reason: str | None = None
    node_id: str | None = None
    fence: int = 0
    claim_tries: int = 0
    report: bytes | None = None
    started_ns: int | None = None
    deadline_ns: int | None = None
    ended_ns: int | None = None
    queued_mark: float = 0.0
    started_mark: float | None = None
    ended_mark: float | None = None
    judging_tries: int = 0
    judging_lease_id: str | None = None
    judging_worker: str | None = None
    judging_until: float | None = None
    judging_ready_mark: float | None = None
    results: bytes | None = None
    recorded: bool = False
    released: bool = False
    network_json: str | None = None
    network_digest: str = ""

    @property
    def public_state(self) -> State:
        """The state to show: an end counts as SCORED or VOIDED only once its record is in the ledger."""
        if self.state in (State.SCORED, State.VOIDED) and not self.recorded:
            return State.JUDGING
        return self.state

    @property
    def over(self) -> bool:
        """Whether nothing about the attempt will change any more, its record included."""
        return self.state in FINAL and self.recorded


@dataclass(frozen=True)
class QueueEntry:
    """What deciding on a place needs to know of a queued attempt."""

    attempt_id: str
    agent_id: str
    challenge_id: str


@dataclass
class Active:
    """How many places are taken: attempts in an ACTIVE state, counted whole and by what limits look at."""

    total: int = 0
    by_agent: Counter[str] = field(default_factory=Counter)
    by_challenge: Counter[str] = field(default_factory=Counter)
    by_node: Counter[str] = field(default_factory=Counter)

    def add(self, agent_id: str, challenge_id: str, node_id: str | None) -> None:
        """Count one more."""
        self.total += 1
        self.by_agent[agent_id] += 1
        self.by_challenge[challenge_id] += 1
        if node_id is not None:
            self.by_node[node_id] += 1


@dataclass(frozen=True)
class Placement:
    """The decision to start an attempt on a node."""

    attempt_id: str
    node_id: str


@dataclass(frozen=True, kw_only=True)
class NodeRow:
    """What is known of a node across restarts. Whether it lives is observed, never kept."""

    node_id: str
    endpoint: str
    agent_endpoint: str
    capacity: int
    boot_id: str = ""
    draining: bool = False


@dataclass(frozen=True, kw_only=True)
class ChallengeRow:
    """An uploaded challenge. `spec_json` is its validated description (`formats.challenge.ChallengeSpec`).

    `network_json` explains its network policy (`formats.record.NetworkRecord`), None when it says nothing about it;
    `network_digest` is what nodes must enforce, empty for no network at all.
    """

    digest: str
    challenge_id: str
    size_bytes: int
    spec_json: str
    created_ns: int
    network_json: str | None = None
    network_digest: str = ""


@dataclass(frozen=True)
class RequestKey:
    """One mutating request: who asked, its id and what it asked (`wire.request_ids.fingerprint`)."""

    principal: str
    request_id: str
    fingerprint: str
