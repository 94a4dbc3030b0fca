"""From a daemon's report to the classifier's evidence. Pure; decides nothing."""

from __future__ import annotations

from gauntlet.daemon.v1 import daemon_service_pb2 as daemon_pb

from scheduler.classification import Cause, Evidence, Signal

_CAUSES = {
    daemon_pb.END_CAUSE_SUBMIT: Cause.SUBMIT,
    daemon_pb.END_CAUSE_TIME_LIMIT: Cause.TIME_LIMIT,
    daemon_pb.END_CAUSE_CANCEL: Cause.CANCEL,
    daemon_pb.END_CAUSE_SANDBOX_DIED: Cause.SANDBOX_DIED,
    daemon_pb.END_CAUSE_PLATFORM: Cause.PLATFORM,
}


def evidence_of(report: daemon_pb.SandboxAttempt) -> Evidence | None:
    """The evidence in a report of a FROZEN or LOST attempt; None when it carries none.

    A cause that this version does not know reads as UNKNOWN, which voids: an unknown word is missing evidence.
    """
    if not report.HasField("evidence"):
        return None
    seen = report.evidence
    return Evidence(
        cause=_CAUSES.get(seen.cause, Cause.UNKNOWN),
        container_exit_code=seen.container_exit_code if seen.container_exit_known else None,
        oom_event=seen.oom_event,
        oom_kill_count=seen.oom_kill_count if seen.oom_kill_count >= 0 else None,
        signals=tuple(Signal(name=signal.name, reason=signal.reason) for signal in seen.signals),
        runtime_panic=seen.runtime_panic,
        pids_exhausted=seen.pids_exhausted,
        memory_near_limit=seen.memory_near_limit,
        disk_full=seen.disk_full,
        workspace_extracted=seen.workspace_extracted,
        workspace_error=seen.workspace_error,
        identity_confirmed=seen.identity_confirmed,
        platform_fault=seen.platform_fault,
        lost=report.state == daemon_pb.SANDBOX_STATE_LOST,
        submitted=seen.submitted,
        time_limit_reached=seen.time_limit_reached,
        blocked_syscalls=seen.blocked_syscalls,
        database_unavailable=seen.database_unavailable,
        telemetry_incomplete=seen.trace_incomplete or seen.telemetry_gaps > 0,
    )
