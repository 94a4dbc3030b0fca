"""What the services answer, as the JSON that the formats define and as tables for people."""

from __future__ import annotations

import json
from typing import Any

from gauntlet.scheduler.v1 import scheduler_service_pb2 as pb
from rich.table import Table

from cli.plain import cell


def state_name(attempt: pb.Attempt) -> str:
    """QUEUED, STARTING, …"""
    return pb.AttemptState.Name(attempt.state).removeprefix("ATTEMPT_STATE_")


def outcome_name(attempt: pb.Attempt) -> str | None:
    """SUBMITTED, …; None before the end."""
    return None if not attempt.outcome else pb.Outcome.Name(attempt.outcome).removeprefix("OUTCOME_")


def fault_name(attempt: pb.Attempt) -> str | None:
    """NONE, AGENT, …; None before the end."""
    return None if not attempt.fault else pb.Fault.Name(attempt.fault).removeprefix("FAULT_")


def priority_name(attempt: pb.Attempt) -> str:
    """bout, practice or rerun."""
    return pb.Priority.Name(attempt.priority).removeprefix("PRIORITY_").lower()


def record(attempt: pb.Attempt) -> dict[str, Any]:
    """The attempt's record so far."""
    value: dict[str, Any] = json.loads(attempt.record_json)
    return value


def diff_digest(attempt: pb.Attempt) -> str | None:
    """The digest of what the attempt changed; None when there is none (yet)."""
    digest: str | None = record(attempt)["workspace"]["diff_digest"]
    return digest


def entry(attempt: pb.Attempt) -> dict[str, Any]:
    """One line of a list."""
    return {
        "attempt_id": attempt.attempt_id,
        "challenge_id": attempt.challenge_id,
        "agent_id": attempt.agent_id,
        "priority": priority_name(attempt),
        "state": state_name(attempt),
        "outcome": outcome_name(attempt),
        "fault": fault_name(attempt),
    }


def table(title: str, rows: list[dict[str, Any]], columns: list[str]) -> Table:
    """Rows as a table; an absent value is shown as a dash, and whatever stands in a row is shown, never obeyed."""
    out = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for column in columns:
        out.add_column(column.replace("_", " "), overflow="fold", no_wrap=column.endswith("_id"))
    for row in rows:
        out.add_row(*(cell(row.get(column)) for column in columns))
    return out


def _missing(sandbox: dict[str, Any]) -> str:
    """What the number of events does not count."""
    gaps, dropped = sandbox.get("telemetry_gaps") or 0, sandbox.get("trace_dropped") or 0
    words = [f"{gaps} gaps"] if gaps else []
    words += [f"{dropped} dropped by the sandbox's kernel"] if dropped else []
    words += ["some of what ran could not be told"] if sandbox.get("trace_incomplete") and not dropped else []
    return f" (incomplete: {', '.join(words)})" if words else ""


def record_table(value: dict[str, Any]) -> Table:
    """A record's main facts, two columns."""
    sandbox = value.get("sandbox") or {}
    workspace = value.get("workspace") or {}
    scores = value.get("scores") or {}
    ended = bool(value.get("outcome"))
    rows = [
        ("attempt", value["attempt_id"]),
        ("challenge", value["challenge_id"]),
        ("agent", value["agent_id"]),
        ("outcome", f"{value['outcome']} (fault: {value['fault']})" if ended else "not ended yet"),
        ("reason", value.get("reason")),
        ("flags", ", ".join(value.get("flags") or []) or "none"),
        ("launch", sandbox.get("launch_type")),
    ]
    if ended:
        code = sandbox.get("exit_code")
        rows.append(("ended", f"{sandbox.get('exit_reason')}{'' if code is None else f' (exit code {code})'}"))
    if (peak := sandbox.get("peak_memory_bytes")) is not None:
        rows.append(("peak memory", f"{peak / 2**20:.1f} MiB"))
    if (events := sandbox.get("telemetry_events")) is not None:
        rows.append(("events", f"{events}{_missing(sandbox)}"))
    if sandbox.get("disk_high"):
        rows.append(("disk", "was more than 80 % full"))
    if files := sandbox.get("suspect_files"):
        rows.append(("withheld from judges", f"{files} files that may be half written"))
    if panic := sandbox.get("runtime_panic"):
        rows.append(("panic", f"{panic.splitlines()[0]} (all of it: --json)"))
    if workspace.get("diff_digest"):
        counts = ", ".join(f"{workspace.get(kind)} {kind}" for kind in ("added", "modified", "deleted"))
        rows += [("changed", counts), ("diff digest", workspace["diff_digest"])]
    rows += [(f"score {name}", score) for name, score in scores.items()]
    if value.get("agent_feedback"):
        rows.append(("feedback", value["agent_feedback"]))
    out = Table(box=None, show_header=False, pad_edge=False)
    out.add_column(style="dim", no_wrap=True)
    out.add_column(overflow="fold")
    for name, text in rows:
        out.add_row(name, cell(text))
    return out
