"""`gauntlet classify table`: the rows that the classifier is tested with, as a reader and as a program sees them."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from cli.main import app
from scheduler.classification_table import ROWS


def test_every_row_is_printed_with_its_verdict() -> None:
    done = CliRunner().invoke(app, ["classify", "table", "--json"])
    assert done.exit_code == 0
    shown = json.loads(done.stdout)
    assert [(row["ending"], row["outcome"], row["fault"]) for row in shown] == [
        (row.name, row.outcome.value, row.fault.value) for row in ROWS
    ]
    memory = next(row for row in shown if row["ending"] == "OOM by counter")
    assert memory["seen"] == {"container_exit_code": 137, "oom_kill_count": 1}
    assert memory["scoring_impact"]["stability"] == 0
    assert "memory limit" in memory["agent_feedback"]


def test_a_reader_gets_a_table_and_what_endings_mean_for_scores() -> None:
    done = CliRunner().invoke(app, ["classify", "table"])
    assert done.exit_code == 0
    for words in ("SIGKILL from nowhere", "SIGTERM/soft_timeout", "What it means for the scores", "penalized"):
        assert words in done.stdout
