"""Between the daemon's values and gauntlet.daemon.v1: field by field, no decision."""

from __future__ import annotations

import re

from gauntlet.daemon.v1 import daemon_service_pb2 as pb
from google.protobuf.timestamp_pb2 import Timestamp

from daemon.attempts.databases import PORTS
from daemon.attempts.model import AttemptFacts, ClaimSpec, DatabaseSpec, Evidence, State, Usage, WorkspaceSummary
from formats.challenge import ID_PATTERN
from wire import errors

MAX_DATABASE_START_SECONDS = 120
RESOURCE_FIELDS = ("memory_bytes", "cpu_millis", "disk_bytes", "pids", "tmp_bytes")


def claim_spec(request: pb.ClaimRequest) -> ClaimSpec:
    """A claim. Raises WireError for what no claim can have."""
    seconds = request.time_limit_duration.ToTimedelta().total_seconds()
    problems = [
        (name, "is missing")
        for name in ("attempt_id", "challenge_digest", "challenge_id", "stack")
        if not getattr(request, name)
    ]
    if seconds <= 0:
        problems.append(("time_limit_duration", "must be above zero"))
    if request.fence <= 0:
        problems.append(("fence", "must be above zero"))
    problems.extend(
        (f"resources.{name}", "must not be negative")
        for name in RESOURCE_FIELDS
        if getattr(request.resources, name) < 0
    )
    database = _database(request) if request.HasField("database") else None
    if database is not None:
        problems.extend(_database_problems(database))
    if problems:
        raise errors.invalid("CLAIM_INVALID", "the claim is not complete", problems)
    return ClaimSpec(
        attempt_id=request.attempt_id,
        fence=request.fence,
        challenge_digest=request.challenge_digest,
        challenge_id=request.challenge_id,
        agent_id=request.agent_id,
        stack=request.stack,
        time_limit_seconds=seconds,
        resources={name: value for name in RESOURCE_FIELDS if (value := getattr(request.resources, name))},
        environment=dict(request.environment),
        warm_only=request.warm_only,
        network_digest=request.network_digest,
        database=database,
    )


def _database(request: pb.ClaimRequest) -> DatabaseSpec:
    wanted = request.database
    seconds = wanted.start_timeout_duration.ToTimedelta().total_seconds()
    return DatabaseSpec(wanted.kind, wanted.name, seconds)


def _database_problems(database: DatabaseSpec) -> list[tuple[str, str]]:
    """The name is put into a shell's script and into SQL: nothing but the format's own letters may pass."""
    problems = []
    if database.kind not in PORTS:
        problems.append(("database.kind", f"must be one of {', '.join(sorted(PORTS))}"))
    if not re.fullmatch(ID_PATTERN, database.name):
        problems.append(("database.name", f"must match {ID_PATTERN}"))
    if not 0 < database.start_timeout_seconds <= MAX_DATABASE_START_SECONDS:
        problems.append(
            ("database.start_timeout_duration", f"must be above 0 and {MAX_DATABASE_START_SECONDS} at most")
        )
    return problems


def attempt(facts: AttemptFacts) -> pb.SandboxAttempt:
    """One attempt as it now is."""
    message = pb.SandboxAttempt(
        attempt_id=facts.attempt_id,
        fence=facts.spec.fence,
        state=pb.SandboxState.Value(f"SANDBOX_STATE_{facts.state.value}"),
        sandbox_id=facts.sandbox_id,
        container_id=facts.container_id,
        image_digest=facts.image_digest,
    )
    if facts.limits is not None:
        for name in RESOURCE_FIELDS:
            setattr(message.limits, name, getattr(facts.limits, name))
    if facts.launch_type:
        message.launch_type = pb.LaunchType.Value(f"LAUNCH_TYPE_{facts.launch_type}")
    for field, value in (
        (message.start_time, facts.start_time_ns),
        (message.end_time, facts.end_time_ns),
        (message.deadline_time, facts.deadline_time_ns),
    ):
        if value:
            field.FromNanoseconds(value)
    if facts.state in (State.FROZEN, State.LOST, State.RELEASED):
        message.evidence.CopyFrom(evidence(facts.evidence))
        message.usage.CopyFrom(usage(facts.usage))
        if facts.workspace is not None:
            message.workspace.CopyFrom(workspace(facts.workspace))
    return message


def evidence(value: Evidence) -> pb.Evidence:
    """The evidence."""
    message = pb.Evidence(
        container_exit_known=value.container_exit_code is not None,
        container_exit_code=value.container_exit_code or 0,
        oom_event=value.oom_event,
        oom_kill_count=value.oom_kill_count,
        runtime_panic=value.runtime_panic,
        runtime_panic_excerpt=value.runtime_panic_excerpt,
        pids_exhausted=value.pids_exhausted,
        memory_near_limit=value.memory_near_limit,
        disk_full=value.disk_full,
        workspace_extracted=value.workspace_extracted,
        workspace_error=value.workspace_error,
        identity_confirmed=value.identity_confirmed,
        platform_fault=value.platform_fault,
        submitted=value.submitted,
        time_limit_reached=value.time_limit_reached,
        blocked_syscalls=value.blocked_syscalls,
        database_unavailable=value.database_unavailable,
        disk_high=value.disk_high,
        suspect_files=value.suspect_files,
        trace_incomplete=value.trace_incomplete,
        trace_dropped=value.trace_dropped,
        telemetry_gaps=value.telemetry_gaps,
    )
    if value.cause is not None:
        message.cause = pb.EndCause.Value(f"END_CAUSE_{value.cause.value}")
    for sent in value.signals:
        time = Timestamp()
        time.FromNanoseconds(sent.time_ns)
        message.signals.add(name=sent.name, reason=sent.reason, send_time=time)
    return message


def usage(value: Usage) -> pb.Usage:
    """The usage."""
    return pb.Usage(
        peak_memory_bytes=value.peak_memory_bytes,
        peak_cpu_percent=value.peak_cpu_percent,
        disk_written_bytes=value.disk_written_bytes,
        pids_peak=value.pids_peak,
        telemetry_events=value.telemetry_events,
    )


def workspace(value: WorkspaceSummary) -> pb.WorkspaceSummary:
    """The workspace."""
    return pb.WorkspaceSummary(
        baseline_digest=value.baseline_digest,
        diff_digest=value.diff_digest,
        added=value.added,
        modified=value.modified,
        deleted=value.deleted,
        manifest_digest=value.manifest_digest,
        artifact_path=value.artifact_path,
    )
