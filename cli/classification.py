"""`gauntlet classify table`: how endings are judged, for a reader. The rows are the classifier's own tests."""

from __future__ import annotations

from typing import Any

import typer

from cli import views
from cli.options import Json
from cli.running import answers, print_json
from formats.record import Flag, Outcome
from scheduler.classification import classify
from scheduler.classification_table import ROWS, Row
from scheduler.scores import scoring_impact

app = typer.Typer(no_args_is_help=True, help="How the end of an attempt is classified.")
COLUMNS = ["ending", "cause", "seen", "outcome", "fault", "flags", "reason"]
MEMORY_BYTES = 4 * 1024**3


@app.callback()
def classification() -> None:
    """How the end of an attempt is classified."""


@app.command()
def table(as_json: Json = False) -> None:
    """Print every kind of ending with the verdict on it; needs no service."""
    rows = [_shown(row) for row in ROWS]
    if as_json:
        print_json(rows)
        return
    text = [{**row, "seen": ", ".join(f"{k}={v}" for k, v in row["seen"].items())} for row in rows]
    for row in text:
        row["flags"] = " ".join(row["flags"])
    answers.print(views.table(f"Endings ({len(rows)})", text, COLUMNS))
    impact = [{"ending": name, "scores": _in_words(words)} for name, words in _impacts()]
    answers.print(views.table("What it means for the scores", impact, ["ending", "scores"]))


def _impacts() -> list[tuple[str, dict[str, int | str]]]:
    """Of each outcome by itself, and of each flag beside a submission."""
    outcomes = [(outcome.value, scoring_impact(outcome, ())) for outcome in Outcome]
    return outcomes + [(flag.value, scoring_impact(Outcome.SUBMITTED, (flag,))) for flag in Flag]


def _in_words(impact: dict[str, int | str]) -> str:
    return "; ".join(f"{dimension}: {words}" for dimension, words in impact.items()) or "none"


def _shown(row: Row) -> dict[str, Any]:
    verdict = classify(row.evidence, memory_limit_bytes=MEMORY_BYTES)
    return {
        "ending": row.name,
        "cause": row.evidence.cause.value,
        "seen": {name: _plain(value) for name, value in row.seen.items()},
        "outcome": verdict.outcome.value,
        "fault": verdict.fault.value,
        "flags": [flag.value for flag in verdict.flags],
        "reason": verdict.reason,
        "agent_feedback": verdict.agent_feedback,
        "scoring_impact": scoring_impact(verdict.outcome, verdict.flags),
    }


def _plain(value: Any) -> Any:
    """Signals as NAME/reason; everything else of an evidence is plain already."""
    if isinstance(value, tuple):
        return [f"{signal.name}/{signal.reason}" for signal in value]
    return value
