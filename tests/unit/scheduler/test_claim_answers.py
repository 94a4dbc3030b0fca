"""What a node's answers and reports call for."""

from __future__ import annotations

from typing import Any

import pytest
from gauntlet.daemon.v1 import daemon_service_pb2 as daemon_pb

from formats.challenge import ChallengeSpec
from formats.record import State
from scheduler.claim import Answer, answer_to, claim_request
from scheduler.classification import Cause
from scheduler.evidence import evidence_of
from scheduler.reports import Standing, standing
from tests.support.scheduling import new_attempt
from wire.errors import WireFailure


@pytest.mark.parametrize(
    ("code", "reason", "answer"),
    [
        ("UNAVAILABLE", "", Answer.RETRY),
        ("CANCELLED", "", Answer.RETRY),
        ("UNAVAILABLE", "POOL_EXHAUSTED", Answer.ELSEWHERE),
        ("UNAVAILABLE", "DRAINING", Answer.ELSEWHERE),
        ("UNAVAILABLE", "RUNTIME_UNAVAILABLE", Answer.ELSEWHERE),
        ("UNAVAILABLE", "COLD_START_FAILED", Answer.FAULT),
        ("RESOURCE_EXHAUSTED", "", Answer.ELSEWHERE),
        ("RESOURCE_EXHAUSTED", "NODE_FULL", Answer.ELSEWHERE),
        ("FAILED_PRECONDITION", "CHALLENGE_MISSING", Answer.UPLOAD),
        ("FAILED_PRECONDITION", "STALE_FENCE", Answer.FAULT),
        ("DEADLINE_EXCEEDED", "", Answer.FAULT),
        ("INTERNAL", "RUNTIME_FAULT", Answer.FAULT),
        ("INVALID_ARGUMENT", "STACK_UNKNOWN", Answer.REFUSED),
        ("UNIMPLEMENTED", "", Answer.REFUSED),
    ],
)
def test_answers(code: str, reason: str, answer: Answer) -> None:
    assert answer_to(WireFailure(code, reason, "words")) is answer


R, F, GONE = daemon_pb.SANDBOX_STATE_RUNNING, daemon_pb.SANDBOX_STATE_FROZEN, daemon_pb.SANDBOX_STATE_RELEASED


@pytest.mark.parametrize(
    ("attempt", "fence", "state", "expected"),
    [
        (None, 1, R, Standing.STRAY),
        (None, 1, GONE, Standing.NOTHING),
        ({"state": State.RUNNING, "node_id": "n1", "fence": 1}, 1, R, Standing.PRESENT),
        ({"state": State.STARTING, "node_id": "n1", "fence": 1}, 1, F, Standing.PRESENT),
        ({"state": State.RUNNING, "node_id": "n1", "fence": 1}, 1, GONE, Standing.PRESENT),
        ({"state": State.JUDGING, "node_id": "n1", "fence": 1}, 1, F, Standing.PRESENT),
        ({"state": State.SCORED, "node_id": "n1", "fence": 1}, 1, F, Standing.PRESENT),
        ({"state": State.SCORED, "node_id": "n1", "fence": 1, "released": True}, 1, F, Standing.STRAY),
        ({"state": State.SCORED, "node_id": "n1", "fence": 1, "released": True}, 1, GONE, Standing.NOTHING),
        ({"state": State.QUEUED, "fence": 1}, 1, R, Standing.LATER),
        ({"state": State.STARTING, "node_id": "n1", "fence": 2}, 1, R, Standing.LATER),
        ({"state": State.STARTING, "node_id": "n2", "fence": 2}, 1, R, Standing.STRAY),
        ({"state": State.RUNNING, "node_id": "n2", "fence": 2}, 1, F, Standing.STRAY),
        ({"state": State.RUNNING, "node_id": "n2", "fence": 2}, 1, GONE, Standing.NOTHING),
        ({"state": State.FAILED, "node_id": None, "fence": 1, "released": True}, 1, R, Standing.STRAY),
    ],
)
def test_standing_of_a_report_from_node_n1(
    attempt: dict[str, object] | None, fence: int, state: int, expected: Standing
) -> None:
    report = daemon_pb.SandboxAttempt(attempt_id="att_1", fence=fence, state=state)
    kept = new_attempt("att_1", **attempt) if attempt is not None else None
    assert standing(kept, "n1", report) is expected


def test_a_claim_is_the_same_for_the_same_lease_and_another_for_the_next() -> None:
    spec = ChallengeSpec.model_validate(
        {"id": "c", "title": "t", "stack": "python311", "time_limit_seconds": 5, "resources": {"cpus": 0.5}}
    )
    attempt = new_attempt("att_1", fence=1)
    assert claim_request(attempt, spec) == claim_request(attempt, spec)
    later = claim_request(new_attempt("att_1", fence=2), spec)
    assert later.request_id != claim_request(attempt, spec).request_id
    assert (later.resources.cpu_millis, later.resources.memory_bytes) == (500, 0)


def test_a_report_without_evidence_has_none() -> None:
    assert evidence_of(daemon_pb.SandboxAttempt(state=F)) is None


def test_evidence_says_what_was_not_known() -> None:
    report = daemon_pb.SandboxAttempt(state=daemon_pb.SANDBOX_STATE_LOST)
    report.evidence.CopyFrom(daemon_pb.Evidence(container_exit_code=137, oom_kill_count=-1))
    report.evidence.signals.add(name="SIGKILL", reason="release")
    evidence = evidence_of(report)
    assert evidence is not None
    assert (evidence.container_exit_code, evidence.oom_kill_count, evidence.lost) == (None, None, True)
    assert (evidence.cause, evidence.workspace_extracted, evidence.identity_confirmed) == (Cause.UNKNOWN, False, False)
    assert evidence.sent("SIGKILL") and not evidence.sent("SIGTERM")


@pytest.mark.parametrize(
    ("seen", "incomplete"),
    [
        ({}, False),
        ({"trace_incomplete": True}, True),
        ({"telemetry_gaps": 1}, True),
        ({"disk_high": True, "suspect_files": 3}, False),
    ],
    ids=str,
)
def test_any_loss_of_events_is_evidence_of_it(seen: dict[str, Any], incomplete: bool) -> None:
    evidence = evidence_of(daemon_pb.SandboxAttempt(evidence=daemon_pb.Evidence(**seen)))
    assert evidence is not None and evidence.telemetry_incomplete is incomplete


@pytest.mark.parametrize("cause", [value for value in daemon_pb.EndCause.values() if value])
def test_every_cause_on_the_wire_is_known(cause: int) -> None:
    report = daemon_pb.SandboxAttempt(evidence=daemon_pb.Evidence(cause=cause))
    evidence = evidence_of(report)
    assert evidence is not None and evidence.cause is not Cause.UNKNOWN
