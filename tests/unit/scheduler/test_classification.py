"""The verdict on every kind of ending. Each row is an accident or an attack somebody will have."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from formats.record import Fault, Flag, Outcome
from scheduler.classification import TIME_FEEDBACK, Cause, Evidence, Signal, classify

MEMORY = 512 * 1024**2
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
NONE, AGENT, PLATFORMS, NOBODY_KNOWS = Fault.NONE, Fault.AGENT, Fault.PLATFORM, Fault.UNKNOWN


def row(name: str, outcome: Outcome, fault: Fault, cause: Cause, **evidence: Any) -> Any:
    return pytest.param(Evidence(cause=cause, **evidence), outcome, fault, id=name)


ROWS = [
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
    row("submitted near its memory limit", Outcome.SUBMITTED, NONE, SUBMIT, memory_near_limit=True),
    row("submitted, a child's OOM survived", Outcome.SUBMITTED, NONE, SUBMIT, oom_kill_count=1),
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
]  # fmt: skip


@pytest.mark.parametrize(("evidence", "outcome", "fault"), ROWS)
def test_verdict(evidence: Evidence, outcome: Outcome, fault: Fault) -> None:
    verdict = classify(evidence, memory_limit_bytes=MEMORY)
    assert (verdict.outcome, verdict.fault) == (outcome, fault), verdict.reason
    assert verdict.reason


def test_the_table_is_large_and_names_every_outcome() -> None:
    assert len(ROWS) >= 60
    assert {param.values[1] for param in ROWS} == set(Outcome)


def test_no_evidence_is_a_void() -> None:
    verdict = classify(None, memory_limit_bytes=MEMORY)
    assert (verdict.outcome, verdict.fault, verdict.exit_code) == (Outcome.VOIDED, Fault.PLATFORM, None)


def test_flags_stand_beside_the_outcome_and_are_sorted() -> None:
    evidence = Evidence(
        cause=SUBMIT, blocked_syscalls=1, disk_full=True, pids_exhausted=True, database_unavailable=True
    )
    assert classify(evidence, memory_limit_bytes=MEMORY).flags == (
        Flag.DATABASE_UNAVAILABLE,
        Flag.DISK_FULL,
        Flag.ESCAPE_ATTEMPT,
        Flag.PIDS_EXHAUSTED,
    )
    assert classify(Evidence(cause=SUBMIT), memory_limit_bytes=MEMORY).flags == ()


@pytest.mark.parametrize(
    ("limit", "words"),
    [(512 * 1024**2, "512MB"), (4 * 1024**3, "4GB"), (1536 * 1024**2, "1536MB"), (1000, "1000B")],
)
def test_feedback_names_the_real_memory_limit(limit: int, words: str) -> None:
    evidence = Evidence(cause=DIED, container_exit_code=137, oom_kill_count=1)
    verdict = classify(evidence, memory_limit_bytes=limit)
    assert verdict.agent_feedback == f"Your submission exceeded the {words} memory limit."


def test_feedback_of_the_other_outcomes() -> None:
    assert classify(Evidence(cause=TIME), memory_limit_bytes=MEMORY).agent_feedback == TIME_FEEDBACK
    assert TIME_FEEDBACK == "Time limit reached. Submission scored on current state."
    assert classify(Evidence(cause=SUBMIT), memory_limit_bytes=MEMORY).agent_feedback is None


def test_exit_code_is_zero_after_an_ordered_end_and_says_who_killed() -> None:
    evidence = Evidence(cause=TIME, container_exit_code=137, signals=(TERM_SOFT, KILL_HARD))
    verdict = classify(evidence, memory_limit_bytes=MEMORY)
    assert verdict.exit_code == 0
    assert verdict.killed_by is not None
    assert (verdict.killed_by.signal, verdict.killed_by.reason) == ("SIGKILL", "hard_timeout")


def test_exit_code_of_a_crash_is_the_containers() -> None:
    verdict = classify(Evidence(cause=DIED, container_exit_code=139), memory_limit_bytes=MEMORY)
    assert (verdict.exit_code, verdict.killed_by) == (139, None)


@pytest.mark.parametrize(("outcome", "judged"), [(o, o not in (Outcome.VOIDED, Outcome.CANCELLED)) for o in Outcome])
def test_what_is_judged(outcome: Outcome, judged: bool) -> None:
    evidence = next(param.values[0] for param in ROWS if param.values[1] is outcome)
    assert classify(evidence, memory_limit_bytes=MEMORY).judged is judged


# What an agent can bring about by itself: any of these, in any mixture, but no foreign signal, no lost evidence.
AGENTS_MEANS = {
    "oom_event": (False, True),
    "oom_kill_count": (0, 1, None),
    "runtime_panic": (False, True),
    "pids_exhausted": (False, True),
    "memory_near_limit": (False, True),
    "disk_full": (False, True),
    "submitted": (False, True),
    "time_limit_reached": (False, True),
    "blocked_syscalls": (0, 5),
}


def test_the_agent_cannot_mint_a_void() -> None:
    """Every mixture of what an agent can do, over every end it can reach: crash, order, time, memory."""
    tried = 0
    for values in itertools.product(*AGENTS_MEANS.values()):
        means: dict[str, Any] = dict(zip(AGENTS_MEANS, values, strict=True))
        for cause, code, signals in (
            (SUBMIT, 0, (TERM_SUBMIT,)),
            (SUBMIT, 137, (TERM_SUBMIT, KILL_SUBMIT)),
            (TIME, 137, (TERM_SOFT, KILL_HARD)),
            (DIED, 1, ()),
            (DIED, 2, ()),
            (DIED, 134, ()),
            (DIED, 139, ()),
        ):
            evidence = Evidence(cause=cause, container_exit_code=code, signals=signals, **means)
            verdict = classify(evidence, memory_limit_bytes=MEMORY)
            assert verdict.outcome not in (Outcome.VOIDED, Outcome.CANCELLED), evidence
            assert verdict.fault is not Fault.PLATFORM, evidence
            tried += 1
    assert tried == 7 * 2**8 * 3


@pytest.mark.parametrize(
    "injected",
    [
        {"platform_fault": "the gofer died"},
        {"cause": PLATFORM},
        {"lost": True},
        {"identity_confirmed": False},
        {"workspace_extracted": False},
        {"container_exit_code": None},
        {"cause": UNKNOWN},
    ],
    ids=str,
)
@pytest.mark.parametrize("cause", [SUBMIT, TIME])
@pytest.mark.parametrize("flag", ["disk_full", "pids_exhausted", "memory_near_limit", "database_unavailable"])
def test_the_platforms_fault_is_never_the_agents(injected: dict[str, Any], cause: Cause, flag: str) -> None:
    evidence = Evidence(**{"cause": cause, flag: True, **injected})
    verdict = classify(evidence, memory_limit_bytes=MEMORY)
    assert (verdict.outcome, verdict.fault) == (Outcome.VOIDED, Fault.PLATFORM)
