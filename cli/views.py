"""What the services answer, as the JSON that the formats define and as tables for people."""

from __future__ import annotations

import json
from typing import Any

from gauntlet.scheduler.v1 import scheduler_service_pb2 as pb
from rich.table import Table


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
    """Rows as a table; an absent value is shown as a dash."""
    out = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for column in columns:
        out.add_column(column.replace("_", " "))
    for row in rows:
        out.add_row(*("–" if row.get(column) is None else str(row[column]) for column in columns))
    return out


def record_table(value: dict[str, Any]) -> Table:
    """A record's main facts, two columns."""
    sandbox = value.get("sandbox") or {}
    workspace = value.get("workspace") or {}
    scores = value.get("scores") or {}
    rows = [
        ("attempt", value["attempt_id"]),
        ("challenge", value["challenge_id"]),
        ("agent", value["agent_id"]),
        ("outcome", f"{value.get('outcome')} (fault: {value.get('fault')})"),
        ("flags", ", ".join(value.get("flags") or []) or "none"),
        ("launch", sandbox.get("launch_type")),
        ("ended", f"{sandbox.get('exit_reason')} (exit code {sandbox.get('exit_code')})"),
        ("peak memory", f"{(sandbox.get('peak_memory_bytes') or 0) / 2**20:.1f} MiB"),
        ("events", sandbox.get("telemetry_events")),
        ("changed", f"{workspace.get('added')} added, {workspace.get('modified')} modified, "
                    f"{workspace.get('deleted')} deleted"),
        ("diff digest", workspace.get("diff_digest")),
        *((f"score {name}", score) for name, score in scores.items()),
    ]  # fmt: skip
    if value.get("agent_feedback"):
        rows.append(("feedback", value["agent_feedback"]))
    out = Table(box=None, show_header=False, pad_edge=False)
    out.add_column(style="dim")
    out.add_column()
    for name, text in rows:
        out.add_row(name, "–" if text is None else str(text))
    return out
