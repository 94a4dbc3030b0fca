"""Programs that the trace did not tell, found by two looks; and everything that must not be taken for one."""

from __future__ import annotations

import itertools

from daemon.trace.points import decode
from daemon.trace.runsc import Seen
from daemon.trace.tree import Tree
from daemon.trace.unseen import Unseen
from tests.support.sentry import clone, execve, exited

PID_1 = Seen(1, 0, ["supervisor"], None, 0, "/supervisor")


def seen(pid: int, executable: str, *argv: str) -> Seen:
    return Seen(pid, 1, list(argv), None, 0, executable)


class Watched:
    def __init__(self) -> None:
        ticks = itertools.count()
        self.tree = Tree(lambda: next(ticks))
        self.unseen = Unseen(self.tree)

    def feed(self, *packets: bytes) -> None:
        for packet in packets:
            point = decode(packet).point
            assert point is not None
            self.tree.feed(point)

    def look(self, *found: Seen) -> list[tuple[int, str]]:
        facts = self.unseen.compare(self.unseen.before(), [PID_1, *found])
        assert all(isinstance(fact, dict) and fact["inferred"] for fact in facts)
        return [(fact["pid"], fact["command_line"]) for fact in facts if isinstance(fact, dict)]


def test_another_executable_in_two_looks_is_told_once() -> None:
    watched = Watched()
    watched.feed(clone(1, 10), execve(10, "python3", path="/usr/bin/python3"))
    assert watched.look(seen(10, "/usr/bin/python3")) == []
    assert watched.look(seen(10, "/bin/sleep", "sleep", "\ufffd")) == []
    assert watched.look(seen(10, "/bin/sleep", "sleep", "\ufffd")) == [(10, "sleep \ufffd")]
    assert watched.look(seen(10, "/bin/sleep", "sleep", "\ufffd")) == []


def test_a_program_left_before_the_first_look_is_told() -> None:
    watched = Watched()
    watched.feed(clone(1, 10), execve(10, "python3", path="/usr/bin/python3"))
    assert watched.look(seen(10, "/bin/sleep", "sleep", "9")) == []
    assert watched.look(seen(10, "/bin/sleep", "sleep", "9")) == [(10, "sleep 9")]


def test_a_script_runs_in_its_interpreter() -> None:
    watched = Watched()
    watched.feed(clone(1, 10), execve(10, "./check", "-v", path="/workspace/tools/bin/check"))
    for _ in range(3):
        assert watched.look(seen(10, "/usr/bin/dash", "/bin/sh", "-e", "./check", "-v")) == []


def test_what_was_there_before_the_trace_is_taken_as_it_is() -> None:
    watched = Watched()
    watched.tree.seed(10, 1, ["sh"])
    for _ in range(3):
        assert watched.look(seen(10, "/usr/bin/dash", "sh")) == []


def test_a_fork_that_left_its_makers_program_is_told() -> None:
    watched = Watched()
    watched.feed(clone(1, 10), execve(10, "python3", path="/usr/bin/python3"), clone(10, 11))
    for expected in ([], [(11, "evil")]):
        assert watched.look(seen(10, "/usr/bin/python3"), seen(11, "/tmp/evil", "evil")) == expected


def test_a_first_program_that_pid_1_started_is_told() -> None:
    watched = Watched()
    watched.feed(clone(1, 10))
    assert watched.look(seen(10, "/bin/sh", "sh")) == []
    assert watched.look(seen(10, "/bin/sh", "sh")) == [(10, "sh")]


def test_a_fork_in_its_makers_program_is_none() -> None:
    watched = Watched()
    watched.feed(clone(1, 10), execve(10, "python3", path="/usr/bin/python3"), clone(10, 11))
    for _ in range(3):
        assert watched.look(seen(10, "/usr/bin/python3"), seen(11, "/usr/bin/python3", "renamed")) == []


def test_a_program_that_is_told_between_two_looks_is_none() -> None:
    watched = Watched()
    watched.feed(clone(1, 10), execve(10, "sh", path="/bin/sh"))
    watched.look(seen(10, "/bin/sh"))
    watched.look(seen(10, "/bin/cat"))
    watched.feed(execve(10, "cat", path="/bin/cat"))
    for _ in range(3):
        assert watched.look(seen(10, "/bin/cat")) == []


def test_a_look_that_a_program_overtook_is_not_judged() -> None:
    watched = Watched()
    watched.feed(clone(1, 10), execve(10, "sh", path="/bin/sh"))
    before = watched.unseen.before()
    watched.feed(execve(10, "cat", path="/bin/cat"))
    assert watched.unseen.compare(before, [seen(10, "/bin/sh")]) == []
    for _ in range(3):
        assert watched.look(seen(10, "/bin/cat")) == []


def test_a_passing_suspicion_is_forgotten() -> None:
    watched = Watched()
    watched.feed(clone(1, 10), execve(10, "sh", path="/bin/sh"))
    for executable in ("/bin/sh", "/bin/x", "/bin/sh", "/bin/x"):
        assert watched.look(seen(10, executable)) == []


def test_helpers_strangers_and_the_dead_are_left_alone() -> None:
    watched = Watched()
    watched.feed(clone(1, 5), execve(5, "/supervisor", "file-worker", env=()))
    watched.feed(clone(1, 10), execve(10, "sh", path="/bin/sh"), exited(10))
    for _ in range(3):
        assert watched.look(seen(5, "/x"), seen(77, "/y"), seen(10, "/z")) == []
