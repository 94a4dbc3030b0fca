"""An attempt's record, from what the control database holds of it. Pure and deterministic.

The same attempt gives the same bytes however often it is asked, so that appending after a kill is the same append.
"""

from __future__ import annotations

from typing import Any, Literal

from gauntlet.daemon.v1 import daemon_service_pb2 as daemon_pb

from formats.record import (
    JudgeRecord,
    NetworkRecord,
    Outcome,
    Record,
    SandboxRecord,
    Score,
    WorkspaceRecord,
    timestamp,
)
from scheduler.classification import Evidence, exit_code_of, killed_by
from scheduler.evidence import evidence_of
from scheduler.model import Attempt, Priority
from scheduler.results import unpack_results
from scheduler.scores import composite, scoring_impact

_PRIORITIES: dict[Priority, Literal["bout", "practice", "rerun"]] = {
    Priority.BOUT: "bout",
    Priority.PRACTICE: "practice",
    Priority.RERUN: "rerun",
}
_LAUNCHES: dict[int, Literal["WARM", "COLD"]] = {
    daemon_pb.LAUNCH_TYPE_WARM: "WARM",
    daemon_pb.LAUNCH_TYPE_COLD: "COLD",
}


def build_record(attempt: Attempt, *, final: bool = False) -> Record:
    """The record of an attempt as it stands.

    Before the end it has the same shape with `outcome` null. `final` gives the record that is kept: it shows the state
    that becomes public once it is.
    """
    report = report_of(attempt)
    judges, scores = _judged(attempt)
    return Record(
        attempt_id=attempt.attempt_id,
        challenge_id=attempt.challenge_id,
        challenge_digest=attempt.challenge_digest,
        agent_id=attempt.agent_id,
        priority=_PRIORITIES[attempt.priority],
        supersedes=attempt.supersedes,
        state=attempt.state if final else attempt.public_state,
        outcome=attempt.outcome,
        fault=attempt.fault,
        flags=attempt.flags,
        reason=attempt.reason,
        agent_feedback=attempt.agent_feedback,
        created_at=timestamp(attempt.created_ns) or "",
        sandbox=_sandbox(attempt, report),
        workspace=_workspace(report),
        network=NetworkRecord.model_validate_json(attempt.network_json) if attempt.network_json is not None else None,
        judges=judges,
        scores=scores,
        scoring_impact=scoring_impact(attempt.outcome, attempt.flags),
    )


def report_of(attempt: Attempt) -> daemon_pb.SandboxAttempt | None:
    """The daemon's last report of an attempt, None before its start."""
    return daemon_pb.SandboxAttempt.FromString(attempt.report) if attempt.report is not None else None


def _sandbox(attempt: Attempt, report: daemon_pb.SandboxAttempt | None) -> SandboxRecord:
    if report is None:
        return SandboxRecord(
            node_id=attempt.node_id,
            ended_at=timestamp(attempt.ended_ns),
            exit_reason=attempt.exit_reason,
        )
    evidence = evidence_of(report)
    usage = report.usage if report.HasField("usage") else None
    return SandboxRecord(
        sandbox_id=report.sandbox_id or None,
        image_digest=report.image_digest or None,
        node_id=attempt.node_id,
        container_id=report.container_id or None,
        launch_type=_LAUNCHES.get(report.launch_type),
        started_at=timestamp(attempt.started_ns),
        ended_at=timestamp(attempt.ended_ns),
        exit_code=_exit_code(evidence, attempt.outcome),
        exit_reason=attempt.exit_reason,
        killed_by=killed_by(evidence) if evidence is not None else None,
        peak_memory_bytes=usage.peak_memory_bytes if usage is not None else None,
        peak_cpu_percent=round(usage.peak_cpu_percent, 1) if usage is not None else None,
        disk_written_bytes=usage.disk_written_bytes if usage is not None else None,
        pids_peak=usage.pids_peak if usage is not None else None,
        oom_kills=_oom_kills(evidence),
        blocked_syscalls=evidence.blocked_syscalls if evidence is not None else None,
        telemetry_events=usage.telemetry_events if usage is not None else None,
        **_seen(report),
    )


def _seen(report: daemon_pb.SandboxAttempt) -> dict[str, Any]:
    """What the daemon saw that decides nothing, under the record's names."""
    if not report.HasField("evidence"):
        return {}
    seen = report.evidence
    return {
        "telemetry_gaps": seen.telemetry_gaps,
        "trace_dropped": seen.trace_dropped,
        "trace_incomplete": seen.trace_incomplete,
        "disk_high": seen.disk_high,
        "suspect_files": seen.suspect_files,
        "runtime_panic": seen.runtime_panic_excerpt or None,
    }


def _exit_code(evidence: Evidence | None, outcome: Outcome | None) -> int | None:
    return exit_code_of(evidence, outcome) if evidence is not None and outcome is not None else None


def _oom_kills(evidence: Evidence | None) -> int | None:
    """The counter; where it could not be read, the event says that there was one at least."""
    if evidence is None:
        return None
    if evidence.oom_kill_count is None:
        return 1 if evidence.oom_event else None
    return max(evidence.oom_kill_count, int(evidence.oom_event))


def _workspace(report: daemon_pb.SandboxAttempt | None) -> WorkspaceRecord:
    if report is None or not report.HasField("workspace"):
        return WorkspaceRecord()
    seen = report.workspace
    return WorkspaceRecord(
        baseline_digest=seen.baseline_digest or None,
        diff_digest=seen.diff_digest or None,
        added=seen.added,
        modified=seen.modified,
        deleted=seen.deleted,
        manifest_digest=seen.manifest_digest or None,
    )


def _judged(attempt: Attempt) -> tuple[dict[str, JudgeRecord], dict[str, Score]]:
    judges: dict[str, JudgeRecord] = {}
    scores: dict[str, Score] = {}
    figures: dict[str, float] = {}
    for result in unpack_results(attempt.results):
        judges[result.judge] = JudgeRecord(
            container_id=result.container_id or None,
            duration_ms=result.duration_ms,
            documents=result.documents,
        )
        if result.score is not None:
            figures[result.judge] = round(result.score, 1)
            scores[result.judge] = figures[result.judge]
        elif result.verdict is not None:
            scores[result.judge] = result.verdict
    total = composite(figures)
    if total is not None:
        scores["composite"] = total
    return judges, scores
