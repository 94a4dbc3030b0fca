"""The verdict on every kind of ending. Each row is an accident or an attack somebody will have."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from formats.record import Fault, Flag, Outcome
from scheduler.classification import TIME_FEEDBACK, Cause, Evidence, classify
from scheduler.classification_table import (
    DIED,
    KILL_HARD,
    KILL_SUBMIT,
    PLATFORM,
    ROWS,
    SUBMIT,
    TERM_SOFT,
    TERM_SUBMIT,
    TIME,
    UNKNOWN,
    Row,
)

MEMORY = 512 * 1024**2


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_verdict(row: Row) -> None:
    verdict = classify(row.evidence, memory_limit_bytes=MEMORY)
    assert (verdict.outcome, verdict.fault) == (row.outcome, row.fault), verdict.reason
    assert verdict.reason


def test_the_table_is_large_and_names_every_outcome() -> None:
    assert len(ROWS) >= 60
    assert {row.outcome for row in ROWS} == set(Outcome)
    assert {row.fault for row in ROWS} == set(Fault)
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_no_evidence_is_a_void() -> None:
    verdict = classify(None, memory_limit_bytes=MEMORY)
    assert (verdict.outcome, verdict.fault, verdict.exit_code) == (Outcome.VOIDED, Fault.PLATFORM, None)


def test_flags_stand_beside_the_outcome_and_are_sorted() -> None:
    evidence = Evidence(
        cause=SUBMIT,
        blocked_syscalls=1,
        disk_full=True,
        pids_exhausted=True,
        database_unavailable=True,
        telemetry_incomplete=True,
    )
    assert classify(evidence, memory_limit_bytes=MEMORY).flags == (
        Flag.DATABASE_UNAVAILABLE,
        Flag.DISK_FULL,
        Flag.ESCAPE_ATTEMPT,
        Flag.PIDS_EXHAUSTED,
        Flag.TELEMETRY_INCOMPLETE,
    )
    assert set(classify(evidence, memory_limit_bytes=MEMORY).flags) == set(Flag)
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
    evidence = next(row.evidence for row in ROWS if row.outcome is outcome)
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
    "telemetry_incomplete": (False, True),
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
    assert tried == 7 * 2**9 * 3


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
