"""Programs whose execve was not sent, found by the numbers of their calls; and what must not be taken for one."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.trace.facts import Ran, Unnamed
from daemon.trace.points import Attempted, Who, decode
from daemon.trace.runsc import Seen
from daemon.trace.tree import Tree
from daemon.trace.unseen import Unseen
from formats import event
from tests.support.sentry import attempted, clone, execve, exited, syscall

EXECVE, EXECVEAT, ARCH_PRCTL, SET_FS = 59, 322, 158, 0x1002
SHELL = (clone(1, 10), execve(10, "sh"), clone(10, 11))


class Told:
    def __init__(self, *packets: bytes) -> None:
        ticks = itertools.count(1)
        self.tree = Tree(lambda: next(ticks))
        self.facts: list[Any] = []
        self.feed(*packets)

    def feed(self, *packets: bytes) -> Told:
        for packet in packets:
            point = decode(packet).point
            assert point is not None
            self.facts += self.tree.feed(point)
        return self

    def found(self) -> list[tuple[int, str, bool]]:
        spawns = [f for f in self.facts if isinstance(f, dict) and f["event"] == "process_spawn" and f.get("inferred")]
        return [(f["pid"], f["command_line"], f.get("unnamed", False)) for f in spawns]


def ends(pid: int, errno: int = 0, sysno: int = EXECVE) -> bytes:
    return syscall(pid, sysno, errno=errno)


def starts(pid: int, errno: int = 0, what: int = SET_FS) -> bytes:
    return syscall(pid, ARCH_PRCTL, what, errno=errno)


def test_a_program_whose_environment_cannot_be_sent_is_told_with_its_arguments() -> None:
    told = Told(*SHELL, ends(11), attempted(11, "/bin/cat", "cat", "x"), starts(11))
    assert told.found() == [(11, "cat x", False)]
    assert told.facts[-1]["command_line_sha256"].startswith("sha256:")
    told.feed(exited(11, ppid=10))
    assert [f["event"] for f in told.facts[-1:]] == ["process_exit"]
    assert not [f for f in told.facts if isinstance(f, dict) and f.get("forked")]
    assert not [f for f in told.facts if isinstance(f, Unnamed)]


@pytest.mark.parametrize("sysno", [EXECVE, EXECVEAT])
def test_a_program_of_which_nothing_can_be_sent_is_told_without_a_name_and_as_a_loss(sysno: int) -> None:
    told = Told(*SHELL, ends(11, sysno=sysno), starts(11))
    assert told.found() == [(11, "", True)]
    assert told.facts[-1] == Unnamed(11)
    assert "command_line_sha256" not in told.facts[-2]


@pytest.mark.parametrize(
    ("path", "cwd", "name"),
    [
        ("/workspace/tools/bin/count", "/tmp", "count"),
        ("tools/bin/count", "/workspace", "count"),
        ("./count", "/workspace/tools/bin", "count"),
        ("/workspace/tools/bin/../../bin/sh", "/", None),
    ],
)
def test_a_tools_run_is_told_by_the_path_that_was_called(path: str, cwd: str, name: str | None) -> None:
    told = Told(*SHELL, ends(11), attempted(11, path, "count", cwd=cwd), starts(11), exited(11, 256, ppid=10))
    runs = [(f.name, f.command_line, f.status) for f in told.facts if isinstance(f, Ran)]
    assert runs == ([] if name is None else [(name, "count", 256)])


@pytest.mark.parametrize(
    "packets",
    [
        # A search along PATH: each end says success, nothing starts.
        [ends(11), attempted(11, "/bin/x", "x"), ends(11), attempted(11, "/usr/bin/x", "x"), exited(11, 127 << 8)],
        # It is told.
        [ends(11), attempted(11, "/bin/x", "x"), execve(11, "x"), starts(11), starts(11)],
        # Refused at once.
        [ends(11, errno=14), attempted(11, "/bin/x", "x"), starts(11)],
        [ends(11), ends(11, errno=36), starts(11)],
        # Not the first call of a program.
        [ends(11), starts(11, what=0x1001)],
        [ends(11), starts(11, errno=22)],
        [ends(11), syscall(11, ARCH_PRCTL, SET_FS)],
        [starts(11)],
        # Nobody's.
        [ends(77), attempted(77, "/bin/x", "x"), starts(77)],
        [ends(1), starts(1)],
    ],
)  # fmt: skip
def test_what_is_no_program(packets: list[bytes]) -> None:
    assert Told(*SHELL, *packets).found() == []


def test_each_is_told_once_and_a_later_one_again() -> None:
    told = Told(*SHELL, ends(11), attempted(11, "/bin/a", "a"), starts(11), starts(11))
    told.feed(ends(11), starts(11))
    assert told.found() == [(11, "a", False), (11, "", True)]


def test_a_fork_of_one_that_has_called_it_has_not() -> None:
    assert Told(*SHELL, ends(11), clone(11, 12), starts(12)).found() == []


def test_a_look_names_it_and_takes_it_for_no_other_program() -> None:
    told = Told(*SHELL, ends(11), starts(11))
    looks = Unseen(told.tree)
    for _ in range(3):
        assert looks.compare(looks.before(), [Seen(11, 10, ["cat", "\ufffd"], None, 0, "/bin/cat")]) == []
    told.feed(exited(11, ppid=10))
    assert told.facts[-1]["command_line"] == "cat \ufffd"


def test_a_path_is_made_absolute_and_one_that_is_not_there_stays_empty() -> None:
    who = Who(1_000_000_000, 7, 7, 1)
    assert decode(attempted(7, "../x", "x", cwd="/a/b")).point == Attempted(who, b"/a/x", (b"x",))
    assert decode(attempted(7, "", "x", cwd="/a/b")).point == Attempted(who, b"", (b"x",))


SOMETHING = st.one_of(
    st.builds(ends, st.integers(1, 4), st.sampled_from([0, 2]), st.sampled_from([EXECVE, EXECVEAT])),
    st.builds(starts, st.integers(1, 4)),
    st.builds(attempted, st.integers(1, 4), st.text(max_size=5), st.text(max_size=5)),
    st.builds(clone, st.integers(1, 4), st.integers(1, 4)),
    st.builds(lambda pid: execve(pid, "x"), st.integers(1, 4)),
    st.builds(exited, st.integers(1, 4)),
)


@given(st.lists(SOMETHING, max_size=40))
def test_whatever_a_sentry_says_every_fact_can_be_spooled(packets: list[bytes]) -> None:
    told = Told(*packets)
    for fact in told.facts + told.tree.finish():
        if isinstance(fact, dict):
            event.decode(event.encode("process", "att_1", 1, fact))
