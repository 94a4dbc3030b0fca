"""From what the database holds to the record."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gauntlet.daemon.v1 import daemon_service_pb2 as daemon_pb
from gauntlet.scheduler.v1 import judging_service_pb2 as judging_pb

from formats.record import Fault, Flag, Outcome, State
from scheduler.record_builder import build_record
from scheduler.results import check_results, pack_results
from tests.support.scheduling import new_attempt


def report(**evidence: Any) -> bytes:
    seen: dict[str, Any] = {
        "cause": daemon_pb.END_CAUSE_SUBMIT,
        "container_exit_known": True,
        "workspace_extracted": True,
        "identity_confirmed": True,
        **evidence,
    }
    message = daemon_pb.SandboxAttempt(
        attempt_id="att_1",
        fence=1,
        state=daemon_pb.SANDBOX_STATE_FROZEN,
        sandbox_id="sbx_1",
        container_id="ctr_1",
        image_digest="sha256:1",
        launch_type=daemon_pb.LAUNCH_TYPE_COLD,
        evidence=daemon_pb.Evidence(**seen),
        usage=daemon_pb.Usage(peak_memory_bytes=5, peak_cpu_percent=33.333, telemetry_events=9),
        workspace=daemon_pb.WorkspaceSummary(baseline_digest="sha256:b", diff_digest="sha256:d", added=2),
    )
    return message.SerializeToString()


def document(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "state": State.SCORED,
        "outcome": Outcome.SUBMITTED,
        "fault": Fault.NONE,
        "exit_reason": "agent_submitted",
        "report": report(),
        "started_ns": 1_700_000_000_000_000_000,
        "ended_ns": 1_700_000_060_500_000_000,
        "node_id": "node-1",
        "recorded": True,
        **changes,
    }
    return json.loads(build_record(new_attempt("att_1", **values)).canonical())


def test_a_queued_attempt_has_the_same_shape_with_nothing_in_it() -> None:
    queued = json.loads(build_record(new_attempt("att_1")).canonical())
    assert set(queued) == set(document())
    assert set(queued["sandbox"]) == set(document()["sandbox"])
    assert (queued["state"], queued["outcome"], queued["fault"], queued["flags"]) == ("QUEUED", None, None, [])
    assert set(queued["sandbox"].values()) == {None}


def test_an_ended_attempt() -> None:
    sandbox = document()["sandbox"]
    assert sandbox["launch_type"] == "COLD" and sandbox["container_id"] == "ctr_1"
    assert (sandbox["started_at"], sandbox["ended_at"]) == ("2023-11-14T22:13:20.000Z", "2023-11-14T22:14:20.500Z")
    assert (sandbox["peak_cpu_percent"], sandbox["exit_code"], sandbox["oom_kills"]) == (33.3, 0, 0)
    assert document()["workspace"]["added"] == 2 and document()["workspace"]["manifest_digest"] is None


def test_what_was_lost_and_what_is_doubtful_is_in_the_record() -> None:
    seen = {
        "telemetry_gaps": 2,
        "trace_dropped": 40,
        "trace_incomplete": True,
        "disk_high": True,
        "suspect_files": 3,
    }
    sandbox = document(report=report(**seen, runtime_panic_excerpt="panic: nil"))["sandbox"]
    assert {name: sandbox[name] for name in seen} == seen
    assert sandbox["runtime_panic"] == "panic: nil"
    clean = document()["sandbox"]
    assert [clean[name] for name in seen] == [0, 0, False, False, 0]
    assert clean["runtime_panic"] is None


@pytest.mark.parametrize(
    ("evidence", "kills"),
    [
        ({"oom_kill_count": 3}, 3),
        ({"oom_kill_count": -1}, None),
        ({"oom_kill_count": -1, "oom_event": True}, 1),
        ({"oom_kill_count": 0, "oom_event": True}, 1),
    ],
    ids=str,
)
def test_oom_kills(evidence: dict[str, Any], kills: int | None) -> None:
    assert document(report=report(**evidence))["sandbox"]["oom_kills"] == kills


def test_judges_that_ran_and_judges_that_did_not() -> None:
    results = [
        judging_pb.JudgeResult(judge="integrity", verdict="flag"),
        judging_pb.JudgeResult(judge="objective", score=66.66, container_id="jsb_1", documents={"a.json": b"{}"}),
    ]
    results[1].run_duration.FromMilliseconds(1500)
    shown = document(results=pack_results(check_results(results)))
    assert shown["scores"] == {"objective": 66.7, "integrity": "flag", "composite": 66.7}
    assert list(shown["judges"]) == ["integrity", "objective"]
    assert shown["judges"]["integrity"] == {"duration_ms": 0}
    assert shown["judges"]["objective"]["duration_ms"] == 1500
    assert shown["judges"]["objective"]["documents"]["a.json"].startswith("sha256:")


def test_the_network_explanation_is_the_challenges() -> None:
    explained = {"digest": "sha256:1", "services": {"a": {"internet": "none"}}, "warnings": []}
    assert document(network_json=json.dumps(explained))["network"] == explained
    assert "network" not in document()


def test_a_zero_is_shown_as_a_zero() -> None:
    packed = pack_results(check_results([judging_pb.JudgeResult(judge="objective", score=0.0)]))
    assert document(results=packed)["scores"] == {"objective": 0, "composite": 0}


def test_impact_follows_outcome_and_flags() -> None:
    shown = document(outcome=Outcome.TIMED_OUT, flags=(Flag.DISK_FULL,))
    assert shown["scoring_impact"]["time_management"] == "penalized"
    assert shown["scoring_impact"]["resource_efficiency"] == "penalized"


def test_the_same_attempt_gives_the_same_bytes() -> None:
    attempt = new_attempt("att_1", state=State.SCORED, outcome=Outcome.SUBMITTED, report=report())
    assert build_record(attempt, final=True).canonical() == build_record(attempt, final=True).canonical()
    assert json.loads(build_record(attempt, final=True).canonical())["state"] == "SCORED"
    assert json.loads(build_record(attempt).canonical())["state"] == "JUDGING"
