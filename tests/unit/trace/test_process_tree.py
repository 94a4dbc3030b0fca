"""The process tree: points in, facts out."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.trace.facts import Denied, Ran, Refused, command_line
from daemon.trace.points import PointError, Started, decode
from daemon.trace.tree import MAX_PROCESSES, Tree
from formats import event
from tests.support.sentry import clone, execve, exited, syscall

CLONE_THREAD, CLONE_PARENT = 0x10000, 0x8000


class Told:
    """A tree, and what it told."""

    def __init__(self) -> None:
        ticks = itertools.count(1)
        self.tree = Tree(lambda: next(ticks))
        self.facts: list[Any] = []

    def feed(self, *packets: bytes) -> Told:
        for packet in packets:
            point = decode(packet).point
            assert point is not None
            self.facts += self.tree.feed(point)
        return self

    def processes(self) -> list[tuple[Any, ...]]:
        return [
            (f["event"], f["pid"], f["ppid"], f["command_line"], f["exit_code"], f.get("signal"))
            for f in self.facts
            if isinstance(f, dict)
        ]


def test_a_command_with_a_child_is_told_in_order() -> None:
    told = Told().feed(
        clone(1, 10), execve(10, "sh", "-c", "true; exit 3"),
        clone(10, 11), execve(11, "true", ppid=10), exited(11, 0, ppid=10),
        exited(10, 3 << 8),
    )  # fmt: skip
    assert told.processes() == [
        ("process_spawn", 10, 1, "sh -c true; exit 3", None, None),
        ("process_spawn", 11, 10, "true", None, None),
        ("process_exit", 11, 10, "true", 0, None),
        ("process_exit", 10, 1, "sh -c true; exit 3", 3, None),
    ]
    assert len(told.tree) == 0


def test_every_execve_of_one_process_is_a_spawn() -> None:
    told = Told().feed(clone(1, 10), execve(10, "sh"), execve(10, "env", "x"), execve(10, "x"), exited(10))
    assert [(name, line) for name, _, _, line, _, _ in told.processes()] == [
        ("process_spawn", "sh"),
        ("process_spawn", "env x"),
        ("process_spawn", "x"),
        ("process_exit", "x"),
    ]


def test_a_fork_that_runs_nothing_is_told_once_before_its_end_under_its_makers_command() -> None:
    told = Told().feed(clone(1, 10), execve(10, "python3", "w.py"), clone(10, 11, at=50), exited(11, 0, ppid=10, at=90))
    born, ended = told.facts[1:]
    assert (born["event"], born["forked"], born["command_line"], born["ppid"]) == (
        "process_spawn",
        True,
        "python3 w.py",
        10,
    )
    assert born["guest_time_ns"] == 1_050_000_000
    assert ended["event"] == "process_exit"
    assert born["timestamp_ns"] < ended["timestamp_ns"]


def test_threads_are_left_out() -> None:
    assert not Told().feed(clone(10, 12, CLONE_THREAD), clone(10, 10)).facts


def test_a_sibling_made_by_clone_parent_is_its_makers_parents_child() -> None:
    told = Told().feed(clone(1, 10), execve(10, "a"), clone(10, 11, CLONE_PARENT, maker_parent=1), execve(11, "b"))
    assert told.processes()[-1][:4] == ("process_spawn", 11, 1, "b")


def test_the_supervisors_helpers_and_its_failed_starts_are_left_out() -> None:
    helper = "/usr/local/bin/gauntlet-supervisor"
    told = Told().feed(
        clone(1, 5), execve(5, helper, "file-worker", env=(b"GOMAXPROCS=1",)),
        clone(1, 6), exited(6, 253 << 8),
        clone(1, 7), execve(7, helper, "-version", env=()), exited(7),
        exited(5, 9),
    )  # fmt: skip
    assert told.facts == []


def test_a_start_of_pid_1s_that_a_signal_ended_is_left_out_unless_it_lived() -> None:
    killed = Told().feed(clone(1, 6, at=0), exited(6, 9, at=20))
    assert killed.processes() == []
    lived = Told().feed(clone(1, 6, at=0), exited(6, 9, at=4_000))
    assert [row[:2] for row in lived.processes() if row[0] != "signal_delivery"] == [
        ("process_spawn", 6),
        ("process_exit", 6),
    ]


def test_a_start_of_pid_1s_that_did_not_fail_is_told_even_if_its_program_was_not() -> None:
    told = Told().feed(clone(1, 6), exited(6, 0))
    assert [row[:2] for row in told.processes()] == [("process_spawn", 6), ("process_exit", 6)]


@pytest.mark.parametrize(
    "packets",
    [
        # An agent's exec has an environment, whatever its arguments.
        [clone(1, 5), execve(5, "/usr/local/bin/gauntlet-supervisor", "file-worker")],
        # Not a child of PID 1.
        [clone(1, 4), execve(4, "sh"), clone(4, 5), execve(5, "x", "file-worker", env=())],
        # CLONE_PARENT makes a child of PID 1, but PID 1 did not make it.
        [clone(1, 4), execve(4, "sh"), clone(4, 5, CLONE_PARENT), execve(5, "x", "file-worker", env=())],
        # Not its first program.
        [clone(1, 5), execve(5, "sh"), execve(5, "x", "file-worker", env=())],
    ],
)  # fmt: skip
def test_an_agent_cannot_pass_for_a_helper(packets: list[bytes]) -> None:
    told = Told().feed(*packets)
    assert told.processes()[-1][:2] == ("process_spawn", 5)


def test_a_signal_is_told_when_its_call_succeeds_and_the_death_is_its_own_event() -> None:
    told = Told().feed(
        clone(1, 10), execve(10, "sh"), clone(10, 11), execve(11, "sleep", "9", ppid=10),
        syscall(10, 62, 11, 15), syscall(10, 62, 11, 15, errno=0),
        exited(11, 15, ppid=10),
    )  # fmt: skip
    assert told.processes()[2:] == [
        ("signal_delivery", 11, 10, "sleep 9", None, 15),
        ("process_exit", 11, 10, "sleep 9", None, 15),
    ]
    assert told.facts[2]["sender_pid"] == 10


def test_a_victim_that_is_gone_before_the_call_ends_is_still_named() -> None:
    told = Told().feed(
        clone(1, 10), execve(10, "sh"), clone(10, 11), execve(11, "sleep", ppid=10),
        syscall(10, 62, 11, 9), exited(11, 9, ppid=10), syscall(10, 62, 11, 9, errno=0),
    )  # fmt: skip
    assert told.processes()[2:] == [
        ("process_exit", 11, 10, "sleep", None, 9),
        ("signal_delivery", 11, 10, "sleep", None, 9),
    ]


@pytest.mark.parametrize(
    "packets",
    [
        [syscall(10, 62, 11, 15), syscall(10, 62, 11, 15, errno=1)],  # refused
        [syscall(10, 62, 11, 0), syscall(10, 62, 11, 0, errno=0)],  # a probe
        [syscall(10, 62, 11, 65), syscall(10, 62, 11, 65, errno=22)],
        [syscall(10, 234, 10, 12, 23), syscall(10, 234, 10, 12, 23, errno=0)],  # Go's pre-emption
        [syscall(1, 234, 1, 3, 23), syscall(1, 234, 1, 3, 23, errno=0)],  # PID 1's own
        [syscall(10, 62, errno=0)],  # an end without a beginning
    ],
)
def test_what_is_no_delivery(packets: list[bytes]) -> None:
    told = Told().feed(clone(1, 10), execve(10, "sh"))
    before = len(told.facts)
    assert told.feed(*packets).facts[before:] == []


@pytest.mark.parametrize(
    ("sysno", "arguments"), [(62, (11, 10)), (129, (11, 10)), (200, (11, 10)), (234, (11, 11, 10)), (297, (11, 11, 10))]
)
def test_every_way_to_send_a_signal_is_seen(sysno: int, arguments: tuple[int, ...]) -> None:
    told = Told().feed(clone(1, 10), execve(10, "a"), clone(10, 11), execve(11, "b", ppid=10))
    told.feed(syscall(10, sysno, *arguments), syscall(10, sysno, *arguments, errno=0))
    assert told.processes()[-1] == ("signal_delivery", 11, 10, "b", None, 10)


def test_group_targets_are_told_as_the_call_named_them() -> None:
    told = Told().feed(clone(1, 10), execve(10, "a"))
    for target in (-10, 0, -1):
        told.feed(syscall(10, 62, target, 15), syscall(10, 62, target, 15, errno=0))
    assert [row[1] for row in told.processes()[1:]] == [-10, 0, -1]


def test_a_death_by_a_signal_that_nobody_sent_is_told_as_concluded() -> None:
    told = Told().feed(clone(1, 10), execve(10, "a"), exited(10, 11 | 0x80))
    assert told.processes()[1:] == [("signal_delivery", 10, 1, "a", None, 11), ("process_exit", 10, 1, "a", None, 11)]
    assert told.facts[1]["inferred"] is True


def test_a_refused_call_is_told_with_its_errno_and_command() -> None:
    told = Told().feed(clone(1, 10), execve(10, "mount", "a", "b"), syscall(10, 165, errno=1, at=7))
    assert told.facts[1] == Denied("mount", "EPERM", 10, "mount a b", 1_007_000_000, False)


def test_a_call_that_succeeds_begins_or_is_pid_1s_is_no_escape() -> None:
    assert Told().feed(syscall(10, 159, errno=0), syscall(10, 159), syscall(1, 165, errno=1)).facts == []


def test_ptrace_is_concluded_from_sigsys_unless_another_processs_signal_explains_it() -> None:
    family = (clone(1, 10), execve(10, "strace"), clone(10, 11), execve(11, "x", ppid=10))
    killed = Told().feed(*family, exited(10, 31))
    assert [f for f in killed.facts if isinstance(f, Denied)] == [
        Denied("ptrace", "killed", 10, "strace", 1_000_000_000, True)
    ]
    sent = Told().feed(*family, syscall(10, 62, 11, 31, at=100), exited(11, 31, ppid=10, at=200))
    assert not [f for f in sent.facts if isinstance(f, Denied)]
    assert not [f for f in sent.facts if isinstance(f, dict) and f.get("inferred")]


@pytest.mark.parametrize(
    ("target", "sender", "at"),
    [
        (11, 11, 100),  # to itself, handled, ignored or blocked
        (-10, 11, 100),  # to a group: whoever lives on has not died of it
        (-1, 10, 100),
        (0, 10, 100),
        (11, 10, -5_000),  # long before
        (12, 10, 100),  # to another
    ],
)
def test_a_signal_31_that_a_process_outlived_hides_no_ptrace(target: int, sender: int, at: int) -> None:
    told = Told().feed(
        clone(1, 10), execve(10, "sh"), clone(10, 12), clone(10, 11), execve(11, "x", ppid=10),
        syscall(sender, 62, target, 31, at=at), syscall(sender, 62, target, 31, errno=0, at=at),
        exited(11, 31, ppid=10, at=200),
    )  # fmt: skip
    assert [f.syscall for f in told.facts if isinstance(f, Denied)] == ["ptrace"]
    concluded = [f for f in told.facts if isinstance(f, dict) and f.get("inferred")]
    assert [(f["event"], f["signal"]) for f in concluded] == [("signal_delivery", 31)]


def test_samples_come_with_the_end_and_are_null_without() -> None:
    told = Told().feed(clone(1, 10), execve(10, "a"), clone(1, 11), execve(11, "b"))
    told.tree.sampled(10, 20.0, 4096)
    told.tree.sampled(10, 50.0, 1024)
    told.tree.sampled(99, 1.0, 1)
    told.feed(exited(10), exited(11))
    first, second = told.facts[2:]
    assert (first["cpu_time_ms"], first["peak_rss_bytes"]) == (50.0, 4096)
    assert (second["cpu_time_ms"], second["peak_rss_bytes"]) == (None, None)


def test_a_tools_run_is_told_at_its_end_with_its_length() -> None:
    told = Told().feed(
        clone(1, 10), execve(10, "check", "-v", path="/workspace/tools/bin/check", at=10),
        execve(10, "python3", "check.py", at=20), exited(10, 2 << 8, at=510),
    )  # fmt: skip
    assert told.facts[-1] == Ran("check", 10, 1, "check -v", 1, 500_000_000, 2 << 8)
    other = Told().feed(clone(1, 10), execve(10, "x", path="/workspace/tools/binx/x"), exited(10))
    assert not [f for f in other.facts if isinstance(f, Ran)]


def test_whoever_lives_at_the_end_was_killed_with_the_sandbox() -> None:
    told = Told().feed(clone(1, 10), execve(10, "a"), clone(10, 11))
    told.facts += told.tree.finish()
    assert told.processes()[1:] == [
        ("process_exit", 10, 1, "a", None, 9),
        ("process_spawn", 11, 10, "a", None, None),
        ("process_exit", 11, 10, "a", None, 9),
    ]
    assert all(fact["inferred"] for fact in told.facts if fact["event"] == "process_exit")
    assert told.tree.finish() == []


def test_what_was_there_before_is_known_and_not_told() -> None:
    told = Told()
    told.tree.seed(10, 1, ["sleep", "99"])
    told.tree.seed(5, 1, ["/usr/local/bin/gauntlet-supervisor", "file-worker"])
    told.feed(exited(5), exited(10, ppid=1))
    assert told.processes() == [("process_exit", 10, 1, "sleep 99", 0, None)]


def test_an_end_without_a_beginning_is_still_told() -> None:
    assert Told().feed(exited(77, 256, ppid=4)).processes()[-1] == ("process_exit", 77, 4, "", 1, None)


def test_a_pid_that_comes_again_ends_the_one_before() -> None:
    told = Told().feed(clone(1, 10), execve(10, "a"), clone(1, 10), execve(10, "b"))
    assert [row[:4] for row in told.processes()] == [
        ("process_spawn", 10, 1, "a"),
        ("process_exit", 10, 1, "a"),
        ("process_spawn", 10, 1, "b"),
    ]


def test_the_tree_is_bounded() -> None:
    told = Told()
    for pid in range(2, MAX_PROCESSES + 102):
        told.feed(clone(1, pid))
    assert len(told.tree) == MAX_PROCESSES
    assert told.tree.ignored == 100


@settings(deadline=None)
@given(st.lists(st.binary(max_size=3000), max_size=40))
def test_a_command_line_fits_and_its_digest_tells_arguments_apart(argv: list[bytes]) -> None:
    text, digest = command_line(argv)
    assert len(text.encode()) <= event.COMMAND_LINE_BYTES
    assert digest.startswith("sha256:")
    assert command_line([*argv, b""])[1] != digest or not argv


PIDS = st.integers(1, 6)
WORDS = st.lists(st.sampled_from(["sh", "file-worker"]), min_size=1, max_size=3)
SOMETHING = st.one_of(
    st.builds(clone, PIDS, PIDS, st.sampled_from([0, 0x11, CLONE_THREAD, CLONE_PARENT])),
    st.builds(lambda pid, argv: execve(pid, *argv), PIDS, WORDS),
    st.builds(exited, PIDS, st.sampled_from([0, 256, 9, 31])),
    st.builds(
        lambda pid, number, target, errno: syscall(pid, number, target, 31, 31, errno=errno),
        PIDS, st.sampled_from([62, 165, 200, 234, 297, 1]), st.integers(-3, 6), st.sampled_from([None, 0, 1]),
    ),
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(SOMETHING, max_size=60))
def test_whatever_a_sentry_says_every_fact_can_be_spooled(packets: list[bytes]) -> None:
    told = Told().feed(*packets)
    told.facts += told.tree.finish()
    for fact in told.facts:
        if isinstance(fact, dict):
            event.decode(event.encode("process", "att_1", 1, fact))
    assert len(told.tree) == 0


def test_container_start_says_nothing_to_the_tree() -> None:
    assert Tree(lambda: 1).feed(Started("ab" * 32)) == []
    with pytest.raises(PointError):
        decode(b"")


@pytest.mark.parametrize("sysno", [56, 57, 58])
def test_a_start_that_the_limit_refused_is_told_and_nothing_else_of_it(sysno):
    assert Told().feed(syscall(10, sysno, errno=11)).facts == [Refused(10)]
    silent = (
        syscall(10, sysno, errno=0),
        syscall(10, sysno, errno=12),  # no memory
        syscall(10, sysno),
        syscall(1, sysno, errno=11),  # PID 1's own
        syscall(10, 435, errno=11),
    )
    assert Told().feed(*silent).facts == []


def test_an_end_that_is_told_again_is_no_second_process():
    """A dead child that nobody waits for: its sentry tells its end again whenever it gets another parent."""
    start = (clone(1, 10), execve(10, "sh"), clone(10, 11))
    told = Told().feed(*start, exited(11, 256, ppid=10))
    again = Told().feed(*start, exited(11, 256, ppid=10), exited(11, 256, ppid=1), exited(11, 256, ppid=0))
    assert again.facts == told.facts
    reused = again.feed(clone(10, 11), exited(11, 512, ppid=10)).facts[len(told.facts) :]
    assert [(f["event"], f["exit_code"]) for f in reused] == [("process_spawn", None), ("process_exit", 2)]


def test_a_helpers_end_that_is_told_again_stays_untold():
    helper = (clone(1, 10), execve(10, "/usr/local/bin/gauntlet-supervisor", "file-worker", env=()), exited(10, 9))
    assert Told().feed(*helper, exited(10, 9, ppid=0)).facts == []
