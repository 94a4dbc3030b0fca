"""Rename storms and removed template directories on real sandboxes: nothing unsaid, nobody flagged for honest work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.attempts import run_script
from tests.support.challenge_files import exec_step, make_challenge, write_script
from tests.support.environment import Environment, gauntlet

pytestmark = pytest.mark.docker
STORM = """
import os
os.chdir('/workspace/submissions'); os.mkdir('A'); open('A/f', 'w').write('1')
for n in range(3000):
    os.rename('A', 'B'); os.rename('B/f', 'B/g'); os.rename('B', 'A'); os.rename('A/g', 'A/f')
"""


@pytest.fixture(scope="module")
def environment() -> Iterator[Environment]:
    made = Environment(node={"grace_seconds": 1.0})
    try:
        made.start()
        yield made
    finally:
        made.stop()


def told(environment: Environment, record: dict[str, Any]) -> list[dict[str, Any]]:
    """The filesystem events of an attempt without a gap."""
    assert record["outcome"] == "SUBMITTED", environment.tail("node")
    done = gauntlet(environment, "events", record["attempt_id"], "--kind", "filesystem", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line for line in lines if "gap" in line] == []
    assert "TELEMETRY_INCOMPLETE" not in record["flags"]
    return lines


def test_removing_a_templates_directories_first_flags_nobody(environment: Environment, tmp_path):
    script = write_script(tmp_path / "s.jsonl", exec_step("sh", "-c", "cd challenge && rm -rf tests src"))
    lines = told(environment, run_script(environment, make_challenge(tmp_path / "c"), script))
    assert {line["event_type"] for line in lines} == {"DELETE"}
    assert not any("source" in line for line in lines)
    paths = [line["file_path"] for line in lines]
    assert {"challenge/tests", "challenge/src", "challenge/src/answer.py"} <= set(paths)
    for path in paths:
        above = path.rpartition("/")[0]
        assert above not in paths or paths.index(path) < paths.index(above)


def test_a_storm_of_renames_says_what_it_left_out(environment: Environment, tmp_path):
    script = write_script(tmp_path / "s.jsonl", exec_step("python3", "-c", STORM))
    lines = told(environment, run_script(environment, make_challenge(tmp_path / "c"), script))
    kinds = [(line["event_type"], line["file_path"]) for line in lines if line.get("source") is None]
    assert kinds.index(("CREATE", "submissions/A/f")) < kinds.index(("MOVED_FROM", "submissions/A"))
    moves = [line for line in lines if line["event_type"] in ("MOVED_FROM", "MOVED_TO")]
    assert len(moves) >= 24_000 or any(line.get("merged") for line in moves)
    place = "submissions/A"
    for kind, path in kinds:  # the directory is never told to leave a name that it does not have
        if path in ("submissions/A", "submissions/B"):
            assert kind != "MOVED_FROM" or path == place
            place = path if kind in ("CREATE", "MOVED_TO") else ""
