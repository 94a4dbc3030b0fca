"""The classifier's table: every kind of ending, what was seen of it, and the verdict that is right.

Each row is an accident or an attack somebody will have. The tests hold `classification.classify` to it, and
`gauntlet classify table` prints it. The order of causes is in `classification`'s own words.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from formats.record import Fault, Outcome
from scheduler.classification import Cause, Evidence, Signal

SUBMIT, TIME, CANCEL, DIED, PLATFORM, UNKNOWN = (
    Cause.SUBMIT,
    Cause.TIME_LIMIT,
    Cause.CANCEL,
    Cause.SANDBOX_DIED,
    Cause.PLATFORM,
    Cause.UNKNOWN,
)
TERM_SOFT = Signal(name="SIGTERM", reason="soft_timeout")
KILL_HARD = Signal(name="SIGKILL", reason="hard_timeout")
KILL_SUBMIT = Signal(name="SIGKILL", reason="submit")
TERM_SUBMIT = Signal(name="SIGTERM", reason="submit")
KILL_CANCEL = Signal(name="SIGKILL", reason="cancel")
KILL_RELEASE = Signal(name="SIGKILL", reason="release")
TERM_RELEASE = Signal(name="SIGTERM", reason="release")
KILL_OOM = Signal(name="SIGKILL", reason="oom")
NONE, AGENT, PLATFORMS, NOBODY_KNOWS = Fault.NONE, Fault.AGENT, Fault.PLATFORM, Fault.UNKNOWN


@dataclass(frozen=True)
class Row:
    """One ending: its name, the evidence, and the verdict."""

    name: str
    evidence: Evidence
    outcome: Outcome
    fault: Fault

    @property
    def seen(self) -> dict[str, Any]:
        """What the evidence holds beyond the ordinary, by field."""
        ordinary = Evidence(cause=self.evidence.cause)
        values = ((one.name, getattr(self.evidence, one.name)) for one in fields(Evidence))
        return {name: value for name, value in values if name != "cause" and value != getattr(ordinary, name)}


def row(name: str, outcome: Outcome, fault: Fault, cause: Cause, **evidence: Any) -> Row:
    """A row of the table."""
    return Row(name, Evidence(cause=cause, **evidence), outcome, fault)


ROWS: tuple[Row, ...] = (
    # submitted
    row("submitted", Outcome.SUBMITTED, NONE, SUBMIT, submitted=True),
    row("submitted, supervisor ended by TERM", Outcome.SUBMITTED, NONE, SUBMIT, submitted=True,
        container_exit_code=143, signals=(TERM_SUBMIT,)),
    row("submitted, killed by us", Outcome.SUBMITTED, NONE, SUBMIT, submitted=True, container_exit_code=137,
        signals=(KILL_SUBMIT,)),
    row("submitted with a full disk", Outcome.SUBMITTED, NONE, SUBMIT, submitted=True, disk_full=True),
    row("submitted after its processes ran out", Outcome.SUBMITTED, NONE, SUBMIT, pids_exhausted=True),
    row("submitted after trying to escape", Outcome.SUBMITTED, NONE, SUBMIT, blocked_syscalls=9),
    row("submitted without a database", Outcome.SUBMITTED, NONE, SUBMIT, database_unavailable=True),
    row("submitted, some of its events lost", Outcome.SUBMITTED, NONE, SUBMIT, telemetry_incomplete=True),
    row("submitted near its memory limit", Outcome.SUBMITTED, NONE, SUBMIT, memory_near_limit=True),
    row("submitted, counter unreadable", Outcome.SUBMITTED, NONE, SUBMIT, oom_kill_count=None),
    row("submitted, panic while ending on our order", Outcome.SUBMITTED, NONE, SUBMIT, container_exit_code=2,
        runtime_panic=True),
    row("submitted, foreign SIGKILL while ending", Outcome.VOIDED, PLATFORMS, SUBMIT, container_exit_code=137),
    row("submitted, end of the container not seen", Outcome.VOIDED, PLATFORMS, SUBMIT, container_exit_code=None),
    row("submitted, workspace lost", Outcome.VOIDED, PLATFORMS, SUBMIT, workspace_extracted=False),
    row("submitted, gofer dead", Outcome.VOIDED, PLATFORMS, SUBMIT, platform_fault="the gofer died"),
    # time
    row("timed out softly", Outcome.TIMED_OUT, AGENT, TIME, signals=(TERM_SOFT,)),
    row("timed out hard", Outcome.TIMED_OUT, AGENT, TIME, container_exit_code=137, signals=(TERM_SOFT, KILL_HARD)),
    row("submitted in the grace", Outcome.TIMED_OUT, AGENT, TIME, submitted=True, signals=(TERM_SOFT,)),
    row("submit noted first, limit reached", Outcome.TIMED_OUT, AGENT, SUBMIT, submitted=True,
        time_limit_reached=True),
    row("timed out with a full disk", Outcome.TIMED_OUT, AGENT, TIME, disk_full=True),
    row("timed out, foreign SIGKILL", Outcome.VOIDED, PLATFORMS, TIME, container_exit_code=137,
        signals=(TERM_SOFT,)),
    row("timed out, end not seen", Outcome.VOIDED, PLATFORMS, TIME, container_exit_code=None),
    row("timed out, workspace lost", Outcome.VOIDED, PLATFORMS, TIME, workspace_extracted=False),
    # memory
    row("OOM by counter", Outcome.OOM_KILLED, AGENT, DIED, container_exit_code=137, oom_kill_count=1),
    row("OOM by event", Outcome.OOM_KILLED, AGENT, DIED, container_exit_code=137, oom_event=True,
        oom_kill_count=None),
    row("OOM whose exit was not seen", Outcome.OOM_KILLED, AGENT, DIED, container_exit_code=None, oom_kill_count=3),
    row("OOM outranks the time limit", Outcome.OOM_KILLED, AGENT, TIME, container_exit_code=137, oom_kill_count=1,
        time_limit_reached=True, signals=(TERM_SOFT,)),
    row("OOM outranks submission", Outcome.OOM_KILLED, AGENT, SUBMIT, submitted=True, container_exit_code=137,
        oom_event=True),
    row("OOM of a child, submitted before we ended the rest", Outcome.OOM_KILLED, AGENT, SUBMIT, submitted=True,
        oom_kill_count=1, signals=(TERM_SUBMIT,)),
    row("OOM of a child, limit reached before we ended the rest", Outcome.OOM_KILLED, AGENT, TIME, oom_kill_count=1,
        time_limit_reached=True, signals=(TERM_SOFT,)),
    row("OOM of a child, then the platform lost the rest", Outcome.VOIDED, PLATFORMS, PLATFORM, oom_kill_count=1),
    row("OOM outranks a panic", Outcome.OOM_KILLED, AGENT, DIED, container_exit_code=2, runtime_panic=True,
        oom_kill_count=1),
    row("OOM that took the gofer first", Outcome.OOM_KILLED, AGENT, PLATFORM, container_exit_code=137,
        oom_kill_count=1, platform_fault="the gofer died"),
    row("OOM, workspace lost", Outcome.VOIDED, PLATFORMS, DIED, container_exit_code=137, oom_kill_count=1,
        workspace_extracted=False),
    row("child's OOM, then the platform failed", Outcome.VOIDED, PLATFORMS, PLATFORM, container_exit_code=137,
        oom_kill_count=1, signals=(KILL_RELEASE,), platform_fault="re-adoption failed"),
    # crashes
    row("panic", Outcome.CRASHED, NOBODY_KNOWS, DIED, container_exit_code=2, runtime_panic=True),
    row("panic after a fork bomb", Outcome.CRASHED, AGENT, DIED, container_exit_code=2, runtime_panic=True,
        pids_exhausted=True),
    row("panic at the memory limit", Outcome.CRASHED, AGENT, DIED, container_exit_code=2, runtime_panic=True,
        memory_near_limit=True),
    row("panic whose exit was not seen", Outcome.CRASHED, NOBODY_KNOWS, DIED, container_exit_code=None,
        runtime_panic=True),
    row("exit 2 without a panic log", Outcome.CRASHED, NOBODY_KNOWS, DIED, container_exit_code=2),
    row("exit 1", Outcome.CRASHED, NOBODY_KNOWS, DIED, container_exit_code=1),
    row("sentry segfault", Outcome.CRASHED, NOBODY_KNOWS, DIED, container_exit_code=139),
    row("sentry abort after a fork bomb", Outcome.CRASHED, AGENT, DIED, container_exit_code=134,
        pids_exhausted=True),
    row("exit 128", Outcome.CRASHED, NOBODY_KNOWS, DIED, container_exit_code=128),
    row("PID 1 ended with 0 by itself", Outcome.CRASHED, NOBODY_KNOWS, DIED, container_exit_code=0),
    row("crash, workspace lost", Outcome.VOIDED, PLATFORMS, DIED, container_exit_code=1, workspace_extracted=False),
    # killed
    row("SIGKILL from nowhere", Outcome.VOIDED, PLATFORMS, DIED, container_exit_code=137),
    row("SIGKILL from nowhere, counter unreadable", Outcome.VOIDED, PLATFORMS, DIED, container_exit_code=137,
        oom_kill_count=None),
    row("SIGKILL after our TERM only", Outcome.VOIDED, PLATFORMS, DIED, container_exit_code=137,
        signals=(TERM_SOFT,), time_limit_reached=True),
    row("SIGTERM from nowhere", Outcome.VOIDED, PLATFORMS, DIED, container_exit_code=143),
    row("our hard timeout, cause unnoted", Outcome.TIMED_OUT, AGENT, DIED, container_exit_code=137,
        signals=(TERM_SOFT, KILL_HARD)),
    row("our submit, cause unnoted", Outcome.SUBMITTED, NONE, DIED, container_exit_code=137, signals=(KILL_SUBMIT,)),
    row("our cancel, cause unnoted", Outcome.CANCELLED, NONE, DIED, container_exit_code=137, signals=(KILL_CANCEL,)),
    row("our release, no order", Outcome.VOIDED, PLATFORMS, DIED, container_exit_code=137, signals=(KILL_RELEASE,)),
    row("our TERM of release, no order", Outcome.VOIDED, PLATFORMS, DIED, container_exit_code=143,
        signals=(TERM_RELEASE,)),
    row("died, end not seen", Outcome.VOIDED, PLATFORMS, DIED, container_exit_code=None),
    row("died with 0 after the limit", Outcome.TIMED_OUT, AGENT, DIED, time_limit_reached=True),
    # cancelled
    row("cancelled", Outcome.CANCELLED, NONE, CANCEL, container_exit_code=137, signals=(KILL_CANCEL,)),
    row("cancelled, nothing extracted", Outcome.CANCELLED, NONE, CANCEL, workspace_extracted=False),
    row("cancelled, memory ran out while ending", Outcome.CANCELLED, NONE, CANCEL, container_exit_code=137,
        oom_kill_count=1),
    # platform
    row("platform cause", Outcome.VOIDED, PLATFORMS, PLATFORM),
    row("platform fault beside a death", Outcome.VOIDED, PLATFORMS, DIED, container_exit_code=1,
        platform_fault="the mount is gone"),
    row("lost", Outcome.VOIDED, PLATFORMS, SUBMIT, lost=True),
    row("cause unknown", Outcome.VOIDED, PLATFORMS, UNKNOWN),
    row("another container", Outcome.VOIDED, PLATFORMS, SUBMIT, submitted=True, identity_confirmed=False),
    row("another container, cancelled", Outcome.VOIDED, PLATFORMS, CANCEL, identity_confirmed=False),
    # more than one cause at once: the order decides
    row("child's OOM ended by us for memory", Outcome.OOM_KILLED, AGENT, DIED, container_exit_code=137, oom_event=True,
        signals=(KILL_OOM,)),
    row("OOM and cancelled", Outcome.CANCELLED, NONE, CANCEL, container_exit_code=137, oom_event=True),
    row("OOM, another container", Outcome.VOIDED, PLATFORMS, DIED, container_exit_code=137, oom_kill_count=1,
        identity_confirmed=False),
    row("panic in the grace of the limit", Outcome.CRASHED, NOBODY_KNOWS, DIED, container_exit_code=2,
        runtime_panic=True, time_limit_reached=True, signals=(TERM_SOFT,)),
    row("sentry abort with its panic log", Outcome.CRASHED, NOBODY_KNOWS, DIED, container_exit_code=2,
        runtime_panic=True, disk_full=True),
    row("timed out, escape attempts and a full disk", Outcome.TIMED_OUT, AGENT, TIME, container_exit_code=137,
        signals=(TERM_SOFT, KILL_HARD), blocked_syscalls=30_000, disk_full=True),
    row("submitted with every flag", Outcome.SUBMITTED, NONE, SUBMIT, submitted=True, disk_full=True,
        pids_exhausted=True, database_unavailable=True, blocked_syscalls=1, telemetry_incomplete=True),
    row("gofer killed from outside", Outcome.VOIDED, PLATFORMS, DIED, container_exit_code=137, submitted=False),
    row("SIGHUP from nowhere", Outcome.VOIDED, PLATFORMS, DIED, container_exit_code=129),
    row("SIGINT from nowhere, after a full disk", Outcome.VOIDED, PLATFORMS, DIED, container_exit_code=130,
        disk_full=True),
    row("platform cause beside every flag", Outcome.VOIDED, PLATFORMS, PLATFORM, disk_full=True, pids_exhausted=True,
        blocked_syscalls=3, telemetry_incomplete=True),
    row("lost while cancelled", Outcome.CANCELLED, NONE, CANCEL, lost=True),
)  # fmt: skip
