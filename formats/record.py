"""The audit record of one attempt: its words and its shape.

Owns the schema that `attempt get --json` prints and the audit ledger keeps; its bytes are `formats.canonical`'s. How
a record is filled is the scheduler's work, how it is kept the ledger's. Before the end the same shape holds with
`outcome` null; a judge that has not run is absent, never zero.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from formats.canonical import Json, canonical


class State(StrEnum):
    """Where an attempt stands. SCORED, VOIDED and FAILED are final.

    FAILED is kept for attempts that never started. A running attempt that was cancelled ends SCORED with outcome
    CANCELLED and no scores: it is not judged.
    """

    QUEUED = "QUEUED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    JUDGING = "JUDGING"
    SCORED = "SCORED"
    VOIDED = "VOIDED"
    FAILED = "FAILED"


class Outcome(StrEnum):
    """How an attempt ended."""

    SUBMITTED = "SUBMITTED"
    CRASHED = "CRASHED"
    OOM_KILLED = "OOM_KILLED"
    TIMED_OUT = "TIMED_OUT"
    CANCELLED = "CANCELLED"
    VOIDED = "VOIDED"


class Fault(StrEnum):
    """Whose fault the outcome is."""

    NONE = "NONE"
    AGENT = "AGENT"
    PLATFORM = "PLATFORM"
    UNKNOWN = "UNKNOWN"


class Flag(StrEnum):
    """What else was seen; never decides the outcome."""

    DISK_FULL = "DISK_FULL"
    PIDS_EXHAUSTED = "PIDS_EXHAUSTED"
    DATABASE_UNAVAILABLE = "DATABASE_UNAVAILABLE"
    ESCAPE_ATTEMPT = "ESCAPE_ATTEMPT"
    TELEMETRY_INCOMPLETE = "TELEMETRY_INCOMPLETE"


EXIT_REASONS: dict[Outcome, str] = {
    Outcome.SUBMITTED: "agent_submitted",
    Outcome.CRASHED: "crashed",
    Outcome.OOM_KILLED: "oom_killed",
    Outcome.TIMED_OUT: "timed_out",
    Outcome.CANCELLED: "cancelled",
    Outcome.VOIDED: "voided",
}
JUDGES = ("objective", "process", "strategy", "integrity")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class KilledBy(_Part):
    """The last signal that the platform itself sent: its name and why (`submit`, `hard_timeout`, `cancel` …)."""

    signal: str
    reason: str


class SandboxRecord(_Part):
    """The sandbox and what it used. Bytes, percent of one CPU, counts; null where nothing was observed.

    `exit_code` is 0 after an end that the platform ordered; `killed_by` then says what it sent. `disk_high`: the
    workspace was more than 80 % full. `suspect_files`: changed files that may be half written after a crash, withheld
    from the judges. `telemetry_gaps`: gap records among the events, resource samples aside; `trace_dropped`: events
    that the sandbox's kernel could not deliver; `trace_incomplete`: process or escape events are missing.
    `runtime_panic`: the first 4 KiB of what the sandbox's kernel wrote when it panicked, the sandbox's own words.
    """

    sandbox_id: str | None = None
    image_digest: str | None = None
    node_id: str | None = None
    container_id: str | None = None
    launch_type: Literal["WARM", "COLD"] | None = None
    started_at: str | None = None
    ended_at: str | None = None
    exit_code: int | None = None
    exit_reason: str | None = None
    killed_by: KilledBy | None = None
    peak_memory_bytes: int | None = None
    peak_cpu_percent: float | None = None
    disk_written_bytes: int | None = None
    pids_peak: int | None = None
    oom_kills: int | None = None
    blocked_syscalls: int | None = None
    telemetry_events: int | None = None
    telemetry_gaps: int | None = None
    trace_dropped: int | None = None
    trace_incomplete: bool | None = None
    disk_high: bool | None = None
    suspect_files: int | None = None
    runtime_panic: str | None = None


class WorkspaceRecord(_Part):
    """What the attempt left behind. Digests are `sha256:…`; counts count every listed diff entry."""

    baseline_digest: str | None = None
    diff_digest: str | None = None
    added: int | None = None
    modified: int | None = None
    deleted: int | None = None
    manifest_digest: str | None = None


class NetworkRecord(_Part):
    """What the challenge's network file was found to grant: the policy's digest and its explanation.

    `services` and `warnings` are what `gauntlet network explain --json` prints.
    """

    digest: str
    services: dict[str, dict[str, Any]]
    warnings: list[dict[str, Any]] = Field(default_factory=list)


class JudgeRecord(_Part):
    """One judge's run. `documents` maps the name of each output document to its `sha256:…` digest."""

    duration_ms: int
    container_id: str | None = None
    documents: dict[str, str] = Field(default_factory=dict)


Score = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | Literal["pass", "flag", "fail"]


class Record(_Part):
    """One attempt's record: the specification's audit JSON under its own names, and what stands beside it."""

    attempt_id: str
    challenge_id: str
    challenge_digest: str
    agent_id: str
    priority: Literal["bout", "practice", "rerun"]
    supersedes: str | None = None
    state: State
    outcome: Outcome | None = None
    fault: Fault | None = None
    flags: tuple[Flag, ...] = ()
    reason: str | None = None
    agent_feedback: str | None = None
    created_at: str
    sandbox: SandboxRecord = SandboxRecord()
    workspace: WorkspaceRecord = WorkspaceRecord()
    network: NetworkRecord | None = None
    judges: dict[str, JudgeRecord] = Field(default_factory=dict)
    scores: dict[str, Score] = Field(default_factory=dict)
    scoring_impact: dict[str, int | str] = Field(default_factory=dict)

    def document(self) -> dict[str, Json]:
        """The record as plain JSON values.

        A judge's absent container and documents are left out, and so is the network of a challenge that says nothing
        about it.
        """
        data: dict[str, Json] = self.model_dump(mode="json")
        if self.network is None:
            del data["network"]
        data["judges"] = {
            name: {key: value for key, value in judge.model_dump(mode="json").items() if value not in (None, {})}
            for name, judge in self.judges.items()
        }
        return data

    def canonical(self) -> bytes:
        """The record's canonical bytes: what is hashed, kept and shown."""
        return canonical(self.document())


def parse_record(data: bytes) -> Record:
    """The record in `data`. Raises pydantic.ValidationError when it is none."""
    return Record.model_validate_json(data)


def timestamp(nanoseconds: int | None) -> str | None:
    """RFC 3339 in UTC with milliseconds for nanoseconds since the epoch; None for None and for zero (unset)."""
    if not nanoseconds:
        return None
    moment = datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{nanoseconds // 1_000_000 % 1000:03d}Z"
