"""What the daemon knows of one attempt: states, evidence, what was claimed. Values only, no behaviour of a sandbox.

`AttemptFacts` is what the journal keeps; whatever cannot outlive the process (link, timers) is in `LiveAttempt`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from daemon.runtime.types import Resources
from formats.sizes import show_size


class State(enum.Enum):
    """Where an attempt stands on its node. It only moves forward."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    ENDING = "ENDING"
    FROZEN = "FROZEN"
    LOST = "LOST"
    RELEASED = "RELEASED"


class Cause(enum.Enum):
    """What ended an attempt first."""

    SUBMIT = "SUBMIT"
    TIME_LIMIT = "TIME_LIMIT"
    CANCEL = "CANCEL"
    SANDBOX_DIED = "SANDBOX_DIED"
    PLATFORM = "PLATFORM"


@dataclass(frozen=True, slots=True)
class SentSignal:
    """A signal of ours. `time_ns` is wall clock."""

    name: str
    reason: str
    time_ns: int


@dataclass(slots=True)
class Evidence:
    """What was observed from outside the sandbox; see gauntlet.daemon.v1.Evidence for each field."""

    cause: Cause | None = None
    container_exit_code: int | None = None
    oom_event: bool = False
    oom_kill_count: int = -1
    signals: list[SentSignal] = field(default_factory=list)
    runtime_panic: bool = False
    runtime_panic_excerpt: str = ""
    pids_exhausted: bool = False
    memory_near_limit: bool = False
    disk_full: bool = False
    disk_high: bool = False
    workspace_extracted: bool = False
    workspace_error: str = ""
    identity_confirmed: bool = False
    platform_fault: str = ""
    submitted: bool = False
    time_limit_reached: bool = False
    blocked_syscalls: int = 0
    database_unavailable: bool = False
    suspect_files: int = 0
    trace_incomplete: bool = False
    trace_dropped: int = 0
    telemetry_gaps: int = 0


@dataclass(slots=True)
class Usage:
    """What the attempt consumed. Bytes, percent of one CPU, counts."""

    peak_memory_bytes: int = 0
    peak_cpu_percent: float = 0.0
    disk_written_bytes: int = 0
    pids_peak: int = 0
    telemetry_events: int = 0


@dataclass(frozen=True, slots=True)
class WorkspaceSummary:
    """The frozen workspace; digests are `sha256:…`."""

    baseline_digest: str
    diff_digest: str
    added: int
    modified: int
    deleted: int
    manifest_digest: str
    artifact_path: str


@dataclass(frozen=True, slots=True)
class DatabaseSpec:
    """A database of the image: `kind` is postgres or redis; the limit is that of one start."""

    kind: str
    name: str
    start_timeout_seconds: float


@dataclass(frozen=True, slots=True)
class ClaimSpec:
    """What a claim asks for. `resources` holds only what differs from the stack's defaults.

    `network_digest` names the network policy to enforce; empty for no network at all.
    """

    attempt_id: str
    fence: int
    challenge_digest: str
    challenge_id: str
    agent_id: str
    stack: str
    time_limit_seconds: float
    resources: Mapping[str, int] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    warm_only: bool = False
    network_digest: str = ""
    database: DatabaseSpec | None = None


@dataclass(slots=True)
class AttemptFacts:
    """One attempt's durable facts. `*_time_ns` is wall clock; `started_boottime_ns` counts from the host's boot."""

    spec: ClaimSpec
    state: State = State.STARTING
    sandbox_id: str = ""
    entry_id: str = ""
    container_id: str = ""
    image_digest: str = ""
    launch_type: str = ""
    limits: Resources | None = None
    boot_id: str = ""
    started_boottime_ns: int = 0
    start_time_ns: int = 0
    end_time_ns: int = 0
    deadline_time_ns: int = 0
    evidence: Evidence = field(default_factory=Evidence)
    usage: Usage = field(default_factory=Usage)
    workspace: WorkspaceSummary | None = None

    @property
    def attempt_id(self) -> str:
        """att_…."""
        return self.spec.attempt_id

    @property
    def ended(self) -> bool:
        """Whether the agent can no longer act."""
        return self.state not in (State.STARTING, State.RUNNING)

    def refenced(self, fence: int) -> None:
        """Accept a newer lease."""
        self.spec = replace(self.spec, fence=fence)


class AttemptError(Exception):
    """Base of what this room raises on purpose; `daemon.services.errors` maps each to the wire."""


class UnknownAttempt(AttemptError):
    """No attempt of that id is known on this node."""

    def __init__(self, attempt_id: str) -> None:
        super().__init__(f"no attempt {attempt_id} on this node")
        self.attempt_id = attempt_id


class StaleFence(AttemptError):
    """The call carries an older lease than the daemon has seen."""

    def __init__(self, attempt_id: str, given: int, known: int) -> None:
        super().__init__(f"attempt {attempt_id}: fence {given} is older than {known}")
        self.attempt_id, self.given, self.known = attempt_id, given, known


class AttemptEnded(AttemptError):
    """The agent's call came after the end."""

    def __init__(self, attempt_id: str) -> None:
        super().__init__(f"attempt {attempt_id} has ended")
        self.attempt_id = attempt_id


class SandboxUnreachable(AttemptError):
    """The pipe to the sandbox's PID 1 is gone and nobody says that the sandbox is: the engine is away."""

    def __init__(self, attempt_id: str) -> None:
        super().__init__(f"the sandbox of attempt {attempt_id} cannot be reached now; try again")
        self.attempt_id = attempt_id


class ChallengeMissing(AttemptError):
    """The challenge's package is not on this node yet."""

    def __init__(self, digest: str) -> None:
        super().__init__(f"challenge {digest} is not on this node")
        self.digest = digest


class ClaimRefused(AttemptError):
    """No sandbox now: the node drains, is full, or the pool is empty and cold starts are refused."""

    def __init__(self, reason: str, message: str) -> None:
        """`reason` is NODE_DRAINING, NODE_FULL, POOL_EXHAUSTED, RUNTIME_UNAVAILABLE or COLD_START_FAILED."""
        super().__init__(message)
        self.reason = reason


class UnknownStack(AttemptError):
    """No template of that stack is configured here."""

    def __init__(self, stack: str, known: list[str]) -> None:
        super().__init__(f"no stack {stack!r} on this node; it has {', '.join(known) or 'none'}")
        self.stack, self.known = stack, known


class NetworkUnenforceable(AttemptError):
    """A claim names a network policy that this node cannot enforce."""

    def __init__(self, digest: str) -> None:
        super().__init__(
            f"network policy {digest}: sandboxes of this node have no network; no other policy is enforced"
        )
        self.digest = digest


# A limit's key in a challenge's description.
RESOURCE_KEYS = {
    "memory_bytes": "memory",
    "cpu_millis": "cpus",
    "disk_bytes": "disk",
    "pids": "pids",
    "tmp_bytes": "tmp",
}


class ResourcesRefused(AttemptError):
    """A challenge asks for more than the node's policy allows."""

    def __init__(self, name: str, wanted: int, allowed: int) -> None:
        super().__init__(
            f"challenge.yaml: resources.{RESOURCE_KEYS[name]}: {_amount(name, wanted)} is above this node's limit"
            f" of {_amount(name, allowed)}; ask for less"
        )
        self.name, self.wanted, self.allowed = name, wanted, allowed


def _amount(name: str, value: int) -> str:
    if name.endswith("_bytes"):
        return show_size(value)
    return f"{value / 1_000:g}" if name == "cpu_millis" else str(value)
