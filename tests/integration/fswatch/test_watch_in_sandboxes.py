"""Filesystem telemetry of real attempts: gVisor, the daemon, the collector, the record, by either mechanism."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest

from cli import sandbox
from daemon.fswatch.events import GONE, Told, fold, path_of
from formats import event
from formats.diff import DiffEntry
from tests.support.attempts import ended, run_script, running
from tests.support.challenge_files import exec_step, make_challenge, write_script
from tests.support.environment import Environment, gauntlet, until

pytestmark = pytest.mark.docker
ANSWER = 'def answer():\n    """It."""\n    return 42\n'
TREE = "cd submissions; for n in $(seq 800); do mkdir -p d$n/b/c; echo $n > d$n/b/c/f; done"
STORY = r"""
import os, mmap
os.chdir('/workspace')
open('submissions/kept', 'w').write('kept'); os.rename('submissions/kept', 'submissions/moved')
open('submissions/gone', 'w').write('gone'); os.unlink('submissions/gone')
os.makedirs('submissions/a/b'); open('submissions/a/b/f', 'w').write('1')
os.rename('submissions/a', 'submissions/z'); open('submissions/z/b/g', 'w').write('2')
os.unlink('challenge/briefing.md'); os.symlink('/etc/passwd', 'challenge/briefing.md')
open(b'submissions/odd\xff\n', 'w').write('odd')
with open('submissions/map', 'wb') as f: f.write(b'a' * 5000)
with open('submissions/map', 'r+b') as f:
    m = mmap.mmap(f.fileno(), 5000); m[10:14] = b'bbbb'; m.flush()
"""
FILL = r"""
import errno, os
f = os.open('/workspace/submissions/big', os.O_CREAT | os.O_WRONLY)
try:
    while True: os.write(f, b'x' * 65536)
except OSError as error:
    os.unlink('/workspace/submissions/big')
    assert error.errno == errno.ENOSPC, error
"""
RESERVE = r"""
import errno, os
f = os.open('/workspace/submissions/big', os.O_CREAT | os.O_WRONLY)
try:
    os.posix_fallocate(f, 0, 94 << 20)
    raise SystemExit('reserved more than there is')
except OSError as error:
    os.unlink('/workspace/submissions/big')
    assert error.errno == errno.ENOSPC, error
"""


@pytest.fixture(scope="module", params=["auto", "inotify"])
def environment(request: pytest.FixtureRequest) -> Iterator[Environment]:
    made = Environment(node={"grace_seconds": 1.0, "filesystem_watch": request.param})
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def fresh() -> Iterator[Environment]:
    """An environment of its own: its daemon is killed."""
    made = Environment(node={"grace_seconds": 1.0})
    try:
        made.start()
        yield made
    finally:
        made.stop()


def events_of(environment: Environment, attempt_id: str) -> list[dict[str, Any]]:
    """Filesystem events and gaps, as the command line prints them."""
    done = gauntlet(environment, "events", attempt_id, "--kind", "filesystem", "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_exit(environment: Environment, record: dict[str, Any]) -> None:
    """The attempt's one command went as its program means it to go."""
    done = gauntlet(environment, "events", record["attempt_id"], "--kind", "tool_invocation", "--json")
    (call,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert call["exit_code"] == 0, call["result_summary"]


def check(environment: Environment, record: dict[str, Any]) -> list[dict[str, Any]]:
    """The events, once their last states agree with the diff and their number with the record."""
    assert record["outcome"] == "SUBMITTED", environment.tail("node")
    attempt_id = record["attempt_id"]
    lines = events_of(environment, attempt_id)
    assert event.sequence_problems(lines) == []
    told = fold(json.dumps(line).encode() for line in lines)
    diff = json.loads(gauntlet(environment, "attempt", "diff", attempt_id, "--json").stdout)
    entries = {entry.path: entry for entry in map(DiffEntry.from_json, diff)}
    for path, entry in entries.items():
        size = entry.size if entry.type in ("file", "symlink") else None
        wanted = GONE if entry.change == "deleted" else Told(entry.type, size, entry.sha256)
        assert told.get(path) == wanted, path
    # What is told to be there and not in the diff would have to be Snapshot A's: these stories leave none.
    assert {path for path, state in told.items() if state != GONE} <= entries.keys()
    everything = gauntlet(environment, "events", attempt_id, "--json").stdout.splitlines()
    assert sum("gap" not in json.loads(line) for line in everything) == record["sandbox"]["telemetry_events"]
    return lines


def test_eight_hundred_directories_made_at_full_speed(environment: Environment, tmp_path):
    script = write_script(tmp_path / "s.jsonl", exec_step("sh", "-c", TREE))
    lines = check(environment, run_script(environment, make_challenge(tmp_path / "c"), script))
    last = {path_of(line): line for line in lines if "gap" not in line}
    for number in range(1, 801):
        told = last[b"submissions/d%d/b/c/f" % number]
        assert told["content_hash_sha256"] == hashlib.sha256(b"%d\n" % number).hexdigest()


def test_moves_links_maps_and_odd_names_end_as_the_diff_says(environment: Environment, tmp_path):
    script = write_script(tmp_path / "s.jsonl", exec_step("python3", "-c", STORY))
    lines = check(environment, run_script(environment, make_challenge(tmp_path / "c"), script))
    story = [(line["event_type"], line["file_path"]) for line in lines if "gap" not in line]
    for expected in (
        ("CREATE", "submissions/kept"),
        ("MOVED_FROM", "submissions/kept"),
        ("MOVED_TO", "submissions/moved"),
        ("CREATE", "submissions/gone"),
        ("DELETE", "submissions/gone"),
        ("MOVED_FROM", "submissions/a"),
        ("MOVED_TO", "submissions/z"),
        ("DELETE", "challenge/briefing.md"),
        ("CREATE", "challenge/briefing.md"),
    ):
        assert expected in story


def test_a_refusal_on_a_disk_that_was_nearly_empty_is_seen(environment: Environment, tmp_path):
    script = write_script(tmp_path / "s.jsonl", exec_step("python3", "-c", RESERVE))
    record = run_script(environment, make_challenge(tmp_path / "c"), script)
    check_exit(environment, record)
    assert "DISK_FULL" in record["flags"]


def test_a_moment_of_fullness_freed_at_once_is_seen(environment: Environment, tmp_path):
    script = write_script(tmp_path / "s.jsonl", exec_step("python3", "-c", FILL))
    record = run_script(environment, make_challenge(tmp_path / "c"), script)
    check_exit(environment, record)
    assert "DISK_FULL" in record["flags"]
    told = environment.log("node").read_text()
    alerts = [line for line in told.splitlines() if "disk_above_80_percent" in line and record["attempt_id"] in line]
    assert len(alerts) == 1


def test_a_file_that_was_not_seen_whole_before_a_crash_is_withheld(environment: Environment, tmp_path):
    """The map's store is invisible until the end: what lies there is nobody's finished work."""
    write = f"open('/workspace/challenge/src/answer.py', 'w').write({ANSWER!r})"
    wrong = ANSWER.replace("42", "43")
    mapped = (
        f"import mmap\nopen('/workspace/challenge/src/answer.py', 'w').write({wrong!r})\nimport time; time.sleep(1)\n"
        "f = open('/workspace/challenge/src/answer.py', 'r+b')\n"
        "m = mmap.mmap(f.fileno(), 0); m[:] = m[:].replace(b'43', b'42'); m.flush()"
    )
    hog = exec_step("python3", "-c", "import time; time.sleep(1)\nb = bytearray()\nwhile True: b += b'x' * 10_000_000")
    scores = {}
    for name, program in (("written", write), ("mapped", mapped)):
        script = write_script(tmp_path / "s.jsonl", exec_step("python3", "-c", program), hog)
        record = run_script(environment, make_challenge(tmp_path / "c"), script)
        assert record["outcome"] == "OOM_KILLED"
        scores[name] = record["scores"]["objective"]
        withheld = [
            json.loads(line)
            for line in environment.log("node").read_text().splitlines()
            if "files_withheld_from_judges" in line and record["attempt_id"] in line
        ]
        assert [line["files"] for line in withheld] == ([1] if name == "mapped" else [])
        assert record["sandbox"]["suspect_files"] == len(withheld)
    assert scores == {"written": 100, "mapped": scores["mapped"]}
    assert scores["mapped"] < 100


async def test_what_happened_while_the_daemon_was_dead_is_told_after_a_gap(fresh: Environment, tmp_path):
    async def shell(agent: Any, script: str) -> None:
        end = await sandbox.run_command(agent, ["sh", "-c", script], stdout=lambda _: None, stderr=lambda _: None)
        assert end.exit_code == 0

    away = "touch submissions/armed; while [ ! -e submissions/go ]; do sleep 0.1; done; sleep 3; rm submissions/before;"
    away += (
        "mkdir submissions/new; echo n > submissions/new/file; echo more >> submissions/grown; touch submissions/done"
    )
    async with running(fresh, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        await shell(agent, "echo b > submissions/before; echo g > submissions/grown; rm challenge/briefing.md")
        background = asyncio.create_task(sandbox.run_command(agent, ["sh", "-c", away]))
        await until(lambda: any("armed" in line.get("file_path", "") for line in events_of(fresh, attempt_id)))
        await shell(agent, "touch submissions/go")
        fresh.kill("node")
        background.cancel()  # else it waits for the next life
        await asyncio.gather(background, return_exceptions=True)
        upper = next((fresh.state / "node" / "slots").glob("*/merged/submissions/armed")).parent
        await until(lambda: (upper / "done").exists())
        fresh.start("node")
        await until(
            lambda: any(line.get("file_path") == "submissions/new/file" for line in events_of(fresh, attempt_id))
        )
        await shell(agent, "echo after > submissions/after")
        await sandbox.submit(agent)
        record = await ended(to, attempt_id)
    lines = check(fresh, record)
    gaps = [line["gap"] for line in lines if "gap" in line]
    assert ("daemon_restart", None) in [(gap["reason"], gap["last"]) for gap in gaps]
    behind = lines[[line.get("gap", {}).get("reason") == "daemon_restart" for line in lines].index(True) :]
    rescanned = {(line["event_type"], line["file_path"]) for line in behind if line.get("source") == "rescan"}
    assert ("DELETE", "submissions/before") in rescanned
    assert ("MODIFY", "submissions/grown") in rescanned
    assert ("CREATE", "submissions/new/file") in rescanned
    assert ("MODIFY", "submissions/after") in {(line.get("event_type"), line.get("file_path")) for line in behind}
