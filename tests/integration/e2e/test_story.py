"""One scripted attempt, told completely by its public events: every process, signal, file and number.

A small program is built with make, tests run, files move and go, one child is killed and one is left behind. What must
have happened is written down here; the events must say that and nothing else.
"""

from __future__ import annotations

import hashlib
import json
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from gauntlet.telemetry.v1 import event_service_pb2 as pb

from cli.clients import services
from tests.support.attempts import run_script
from tests.support.challenge_files import exec_step, make_challenge, write_script
from tests.support.environment import gauntlet
from tests.support.told import gap_free, spawned, told
from wire import client

pytestmark = pytest.mark.docker

MAKEFILE = """\
check: greet
\t./greet > said.txt; test -s said.txt
greet: main.o part.o
\tgcc -o greet main.o part.o
main.o: main.c
\tgcc -c main.c
part.o: part.c
\tgcc -c part.c
"""
WRITTEN = {
    "Makefile": MAKEFILE,
    "main.c": '#include <stdio.h>\nint part(void);\nint main(void) { return printf("%d\\n", part()) < 0; }\n',
    "part.c": "int part(void) { return 42; }\n",
    "src/answer.py": "def answer():\n    return 42\n",
    # The victim is known to be what it should become before it is killed.
    "kill.py": (
        "import os, signal, sys\nvictim = int(sys.argv[1])\n"
        "while not open(f'/proc/{victim}/cmdline').read().startswith('sleep'):\n    pass\n"
        "os.kill(victim, signal.SIGTERM)\n"
    ),
}
LEFT = "sleep 72 >/dev/null 2>&1 & true"
KILLED = "sleep 71 & python3 kill.py $!; wait $!"
TIDY = "mv part.c kept.c; mkdir old; mv greet old; mv old bin; rm main.o part.o tests/test_answer.py; exit 3"
PROCESSES = f"""\
sh -c {LEFT} = 0
  sleep 72 = signal 15
make check = 0
  gcc -c main.c = 0
    cc1 = 0
    as = 0
  gcc -c part.c = 0
    cc1 = 0
    as = 0
  gcc -o greet main.o part.o = 0
    collect2 = 0
      ld = 0
  /bin/sh -c ./greet > said.txt; test -s said.txt = 0
    ./greet = 0
python3 -m pytest -q = 0
sh -c {KILLED} = 143
  sleep 71 = signal 15
  python3 kill.py VICTIM = 0
sh -c {TIDY} = 3
  mv part.c kept.c = 0
  mkdir old = 0
  mv greet old = 0
  mv old bin = 0
  rm main.o part.o tests/test_answer.py = 0
"""
TOOLCHAIN = ("cc1", "as", "collect2", "ld")
LEAVING = ("DELETE", "MOVED_FROM")


class Story(NamedTuple):
    """The record, all events in the store's order, the diff."""

    record: dict[str, Any]
    lines: list[dict[str, Any]]
    diff: list[dict[str, Any]]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """A kind's events by number."""
        return sorted((line for line in self.lines if line["kind"] == kind), key=lambda line: line["sequence"])


@pytest.fixture(scope="module")
def story(environment, tmp_path_factory):
    directory = tmp_path_factory.mktemp("story")
    writes = [{"tool": "write_file", "path": f"challenge/{path}", "content": text} for path, text in WRITTEN.items()]
    commands = (("sh", "-c", LEFT), ("make", "check"), ("python3", "-m", "pytest", "-q"), ("sh", "-c", KILLED))
    steps = [
        *writes,
        *(exec_step(*command, cwd="challenge") for command in commands),
        {"tool": "read_file", "path": "challenge/said.txt"},
        exec_step("sh", "-c", TIDY, cwd="challenge"),
    ]
    record = run_script(environment, make_challenge(directory / "c"), write_script(directory / "s.jsonl", *steps))
    done = gauntlet(environment, "attempt", "diff", record["attempt_id"], "--json")
    return Story(record, told(environment, record["attempt_id"]), json.loads(done.stdout))


def test_every_process_has_its_parent_its_command_and_its_end(story):
    victim = spawned(story.of("process"), "sleep 71")["pid"]
    assert family(story.of("process"), 1).replace(f"kill.py {victim} =", "kill.py VICTIM =") == PROCESSES


def test_a_start_comes_before_its_end_and_after_its_parents(story):
    lines = [line for line in story.of("process") if line["event"] != "signal_delivery"]
    assert [line for line in lines if line["ppid"] < 1 or "forked" in line or "inferred" in line] == []
    begun = {line["pid"]: line["sequence"] for line in lines if line["event"] == "process_spawn"}
    over = {line["pid"]: line["sequence"] for line in lines if line["event"] == "process_exit"}
    assert len(begun) * 2 == len(lines), "a process began or ended twice"
    assert begun.keys() == over.keys()
    assert len(begun) == len(PROCESSES.splitlines())
    assert all(begun[pid] < over[pid] for pid in begun)
    assert all(begun[line["ppid"]] < begun[line["pid"]] for line in lines if line["ppid"] != 1)
    assert all(early["timestamp_ns"] <= late["timestamp_ns"] for early, late in pairwise(story.of("process")))


def test_command_lines_are_whole_by_their_digest(story):
    for words in (["make", "check"], ["gcc", "-c", "part.c"], ["sleep", "71"], ["sh", "-c", TIDY]):
        digest = "sha256:" + hashlib.sha256("\0".join(words).encode()).hexdigest()
        assert spawned(story.of("process"), " ".join(words))["command_line_sha256"] == digest


def test_the_kill_has_its_sender_its_target_and_its_number(story):
    lines = story.of("process")
    signals = [line for line in lines if line["event"] == "signal_delivery"]
    victim, killer = spawned(lines, "sleep 71"), spawned(lines, "python3 kill.py")
    (kill,) = [line for line in signals if line.get("sender_pid", 1) != 1]
    assert (kill["sender_pid"], kill["pid"], kill["signal"]) == (killer["pid"], victim["pid"], 15)
    assert (kill["ppid"], kill["command_line"]) == (victim["ppid"], "sleep 71")
    # The end of the attempt: our order, and PID 1 carrying it out on whoever is left.
    assert [(s["pid"], s["signal"]) for s in signals if s.get("sender_pid") == 1] == [(-1, 15), (-1, 9)]
    assert [(s["signal"], s["reason"]) for s in signals if "reason" in s] == [(15, "submit")]
    left = spawned(lines, "sleep 72")["pid"]
    assert [(s["pid"], s["signal"]) for s in signals if s.get("inferred")] == [(left, 15)]


def test_every_file_that_is_left_was_told_with_its_last_bytes(story):
    last = {line["file_path"]: line for line in story.of("filesystem")}
    there = [entry for entry in story.diff if entry["change"] != "deleted"]
    files = {entry["path"]: entry for entry in there if entry["type"] == "file"}
    for path, entry in files.items():
        said = (last[path]["content_hash_sha256"], last[path]["file_size_bytes"])
        assert said == (entry["sha256"], entry["size"]), path
    assert all(last[entry["path"]]["event_type"] not in LEAVING for entry in there)
    assert files["challenge/said.txt"]["sha256"] == hashlib.sha256(b"42\n").hexdigest()
    assert files["challenge/src/answer.py"]["sha256"] == digest_of("src/answer.py")
    assert files["challenge/kept.c"]["sha256"] == digest_of("part.c")
    assert {"challenge/bin/greet", "challenge/Makefile", "challenge/main.c", "challenge/kill.py"} < files.keys()
    # And the other way round: nothing that was told to be there is missing from what is left.
    present = {path for path, line in last.items() if line["event_type"] not in LEAVING}
    assert present == {entry["path"] for entry in there}


def test_what_went_and_what_moved_is_told_as_such(story):
    told_of = [(line["event_type"], line["file_path"].removeprefix("challenge/")) for line in story.of("filesystem")]
    for step in (
        [("MOVED_FROM", "part.c"), ("MOVED_TO", "kept.c")],
        [("CREATE", "old"), ("MOVED_FROM", "greet"), ("MOVED_TO", "old/greet")],
        [("MOVED_FROM", "old"), ("MOVED_TO", "bin")],
        [("DELETE", "main.o"), ("DELETE", "part.o"), ("DELETE", "tests/test_answer.py")],
    ):
        places = [told_of.index(one) for one in step]
        assert places == sorted(places), step
    assert [e["path"] for e in story.diff if e["change"] == "deleted"] == ["challenge/tests/test_answer.py"]
    moved = next(line for line in story.of("filesystem") if line["file_path"] == "challenge/bin/greet")
    assert moved["source"] == "rescan"


def test_a_file_call_shows_as_the_one_rename_that_it_is(story):
    lines = [(line["event_type"], line["file_path"]) for line in story.of("filesystem")]
    temporary = [(what, path) for what, path in lines if "/.gauntlet-" in path]
    assert [what for what, _ in temporary] == ["CREATE", "MODIFY", "MOVED_FROM"] * len(WRITTEN)
    targets = [after for before, after in pairwise(lines) if before in temporary and before[0] == "MOVED_FROM"]
    assert targets == [("MOVED_TO", f"challenge/{path}") for path in WRITTEN]


def test_calls_are_told_in_their_order_with_their_ends(story):
    calls = [(line["tool_name"], line["exit_code"]) for line in story.of("tool_invocation")]
    execs = [("exec", 0), ("exec", 0), ("exec", 0), ("exec", 143), ("read_file", 0), ("exec", 3)]
    assert calls == [("write_file", 0)] * len(WRITTEN) + execs


async def test_the_numbers_are_whole_and_as_many_as_the_record_says(story, environment):
    kinds = {line["kind"] for line in story.lines}
    assert kinds == {"process", "filesystem", "tool_invocation", "resource"}
    assert all(gap_free(story.lines, kind) for kind in kinds)
    assert len(story.lines) == story.record["sandbox"]["telemetry_events"]
    paged: list[dict[str, Any]] = []
    attempt_id, token = story.record["attempt_id"], ""
    async with services(environment.endpoint("scheduler")) as to:
        while True:
            request = pb.ListEventsRequest(attempt_id=attempt_id, page_size=7, page_token=token)
            page = await client.call(to.events.ListEvents, request)
            paged += [json.loads(line) for line in page.events]
            if not (token := page.next_page_token):
                break
        counts = await client.call(to.events.CountEvents, pb.CountEventsRequest(attempt_id=attempt_id))
    assert paged == story.lines
    assert dict(counts.events) == {kind: len(story.of(kind)) for kind in kinds}
    assert not any(counts.gaps.values())
    assert (story.record["outcome"], story.record["flags"]) == ("SUBMITTED", [])


def digest_of(written: str) -> str:
    """The digest of a file of ours."""
    return hashlib.sha256(WRITTEN[written].encode()).hexdigest()


def family(lines: list[dict[str, Any]], parent: int, depth: int = 0) -> str:
    """A process's descendants in the order in which they were made, one line each with its end, indented by generation.

    By their numbers: of two that were made in a row, the second may be the first to run its program.
    """
    text = ""
    for line in sorted(lines, key=lambda one: one["pid"]):
        if line["event"] == "process_spawn" and line["ppid"] == parent:
            (end,) = [one for one in lines if one["event"] == "process_exit" and one["pid"] == line["pid"]]
            assert (end["ppid"], end["command_line"]) == (parent, line["command_line"])
            how = f"signal {end['signal']}" if end["exit_code"] is None else str(end["exit_code"])
            name = line["command_line"].split(" ", 1)[0].rpartition("/")[2]
            command = name if name in TOOLCHAIN else line["command_line"]
            text += f"{'  ' * depth}{command} = {how}\n" + family(lines, line["pid"], depth + 1)
    return text
