"""What an attempt's events say, as the command line prints them."""

from __future__ import annotations

import json
from typing import Any

from formats import event
from tests.support.environment import Environment, gauntlet


def told(environment: Environment, attempt_id: str, kind: str = "") -> list[dict[str, Any]]:
    """An attempt's events and gap records, of one kind or all."""
    arguments = ["events", attempt_id, "--json", *(["--kind", kind] if kind else [])]
    done = gauntlet(environment, *arguments)
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def gap_free(lines: list[dict[str, Any]], kind: str) -> bool:
    """Whether a kind's numbers are whole, and no gap record stands among them."""
    chosen = [line for line in lines if line["kind"] == kind]
    ordered = sorted(chosen, key=lambda line: line.get("sequence", 0))
    return not any("gap" in line for line in chosen) and event.sequence_problems(ordered) == []


def spawned(lines: list[dict[str, Any]], words: str) -> dict[str, Any]:
    """The one start of a program whose command line begins with `words`."""
    found = [
        line
        for line in lines
        if line.get("event") == "process_spawn" and line["command_line"].startswith(words) and "forked" not in line
    ]
    assert len(found) == 1, found
    return found[0]


def ended(lines: list[dict[str, Any]], pid: int) -> dict[str, Any]:
    """The one end of a process."""
    found = [line for line in lines if line.get("event") == "process_exit" and line["pid"] == pid]
    assert len(found) == 1, found
    return found[0]
