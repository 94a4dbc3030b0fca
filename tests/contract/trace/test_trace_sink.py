"""The sink as a process: what sentries say over a real SEQPACKET socket, and what lies in the spool afterwards."""

from __future__ import annotations

import array
import asyncio
import fcntl
import signal
import socket
import stat
import threading
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from daemon.trace.client import TraceClient, Untraced
from formats import event
from tests.support.sentry import Sentry, clone, execve, exited, packet, start, syscall
from tests.support.trace_sink import SinkProcess, attached, container_id
from wire.errors import WireFailure

LIVENESS = 10.0


@pytest.fixture(scope="module")
def process() -> Iterator[SinkProcess]:
    made = SinkProcess()
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def fresh() -> Iterator[SinkProcess]:
    """A sink that a test may kill."""
    made = SinkProcess()
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
async def client(process: SinkProcess) -> AsyncIterator[TraceClient]:
    made = process.client()
    yield made
    await made.close()


@pytest.fixture
def attempt(request: pytest.FixtureRequest) -> str:
    return f"att_{abs(hash(request.node.name))}"


def a_command(pid: int = 10, status: int = 0) -> list[bytes]:
    return [clone(1, pid), execve(pid, "true"), exited(pid, status)]


async def test_a_sandbox_is_heard_bound_and_ended(process: SinkProcess, client: TraceClient, attempt: str) -> None:
    container = container_id()
    waiting = asyncio.create_task(client.expect(container))
    sentry = await asyncio.to_thread(Sentry, process.socket, container)
    async with asyncio.timeout(LIVENESS):
        await waiting
    assert await client.bind(container, attempt) is False
    sentry.send(*a_command(10, 3 << 8), clone(1, 11), execve(11, "mount"), syscall(11, 165, errno=1))
    sentry.close()
    done = await client.finish(container, attempt, [("SIGKILL", "hard_timeout")])
    events = process.lines(attempt)
    assert [(e["event"], e["pid"]) for e in events] == [
        ("process_spawn", 10),
        ("process_exit", 10),
        ("process_spawn", 11),
        ("process_exit", 11),
        ("signal_delivery", -1),
    ]
    assert events[1]["exit_code"] == 3
    assert (events[3]["signal"], events[3]["inferred"]) == (9, True)
    assert (events[4]["signal"], events[4]["reason"]) == (9, "hard_timeout")
    assert event.sequence_problems(events) == []
    escapes = process.lines(attempt, "escape_attempt")
    assert [(e["syscall"], e["result"], e["command_line"]) for e in escapes] == [("mount", "EPERM", "mount")]
    assert {c.kind: (c.events, c.gaps) for c in done.counts} == {"process": (5, 0), "escape_attempt": (1, 0)}
    assert (done.blocked_syscalls, done.dropped, done.session_lost) == (1, 0, False)


async def test_the_platforms_own_start_is_not_told(process: SinkProcess, client: TraceClient, attempt: str) -> None:
    container = container_id()
    sentry = await asyncio.to_thread(Sentry, process.socket, container)
    sentry.send(*a_command(7))
    await client.expect(container)
    await asyncio.to_thread(_until_read, sentry)
    await client.bind(container, attempt)
    sentry.send(*a_command(8))
    sentry.close()
    await client.finish(container, attempt, [])
    assert {e["pid"] for e in process.lines(attempt)} == {8}


def _until_read(sentry: Sentry) -> None:
    """Wait until the sink has taken everything (SIOCOUTQ: bytes that the peer has not read)."""
    deadline = time.monotonic() + LIVENESS
    left = array.array("i", [1])
    while left[0]:
        assert time.monotonic() < deadline
        fcntl.ioctl(sentry.socket, 0x5411, left)
    time.sleep(0.05)  # read is not yet worked off; nothing tells when it is


def _until_spooled(process: SinkProcess, attempt_id: str, kind: str, lines: int) -> None:
    deadline = time.monotonic() + LIVENESS
    while len(process.lines(attempt_id, kind)) < lines:
        assert time.monotonic() < deadline
        time.sleep(0.02)


async def test_no_container_start_no_answer(client: TraceClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.trace.client.EXPECT_SECONDS", 0.3)
    with pytest.raises(Untraced, match="its trace did not begin"):
        await client.expect(container_id())


async def test_a_container_that_cannot_be_traced_cannot_be_bound(client: TraceClient, attempt: str) -> None:
    with pytest.raises(Untraced, match="cannot be traced"):
        await client.bind(container_id(), attempt)


async def test_names_that_could_be_paths_are_refused(client: TraceClient) -> None:
    with pytest.raises(Untraced, match="attempt_id"):
        await client.bind(container_id(), "../../etc")
    with pytest.raises(Untraced, match="container_id"):
        await client.expect("short")
    with pytest.raises(WireFailure, match="attempt_id"):
        await client.finish(container_id(), "a/b", [])


async def test_what_the_sentry_dropped_is_a_gap_of_that_length(
    process: SinkProcess, client: TraceClient, attempt: str
) -> None:
    container = container_id()
    sentry = await asyncio.to_thread(Sentry, process.socket, container)
    await client.expect(container)
    await client.bind(container, attempt)
    sentry.send(clone(1, 10), execve(10, "sh"), exited(10, dropped=5), clone(1, 11, dropped=5))
    sentry.close()
    done = await client.finish(container, attempt, [])
    lines = process.lines(attempt)
    assert [line["gap"] for line in lines if "gap" in line] == [{"first": 2, "last": 6, "reason": "trace_dropped"}]
    assert event.sequence_problems(lines) == []
    assert (done.dropped, done.session_lost) == (5, True)


async def test_a_packet_that_is_none_is_a_gap_of_unknown_length_and_the_rest_is_read(
    process: SinkProcess, client: TraceClient, attempt: str
) -> None:
    container = container_id()
    sentry = await asyncio.to_thread(Sentry, process.socket, container)
    await client.expect(container)
    await client.bind(container, attempt)
    rubbish = [b"x", b"\x08\x00\x04\x00\x00\x00\x00\x00\x0a\xff\xff\xff\xff\x0f", b"\x00" * 100_000]
    sentry.send(*rubbish, *a_command(10))
    sentry.close()
    done = await client.finish(container, attempt, [])
    lines = process.lines(attempt)
    assert [line["gap"]["last"] for line in lines if "gap" in line] == [None]
    assert [line["pid"] for line in lines if "gap" not in line] == [10, 10]
    assert done.session_lost


async def test_identity_is_the_first_words_and_nobody_else_can_take_it(
    process: SinkProcess, client: TraceClient, attempt: str
) -> None:
    mine, theirs = container_id(), container_id()
    victim = await asyncio.to_thread(Sentry, process.socket, mine)
    await client.expect(mine)
    await client.bind(mine, attempt)
    liar = await asyncio.to_thread(Sentry, process.socket, mine)
    turncoat = await asyncio.to_thread(Sentry, process.socket, theirs)
    await client.expect(theirs)
    liar.send(*a_command(66))
    turncoat.send(start(mine), *a_command(77))
    victim.send(*a_command(10))
    for sentry in (liar, turncoat, victim):
        sentry.close()
    await client.finish(mine, attempt, [])
    assert {e["pid"] for e in process.lines(attempt)} == {10}


async def test_a_connection_that_does_not_begin_with_a_start_is_nobodys(process: SinkProcess) -> None:
    nobody = await asyncio.to_thread(Sentry, process.socket)
    nobody.send(*a_command(10))
    nobody.close()
    other = await asyncio.to_thread(socket.socket, socket.AF_UNIX, socket.SOCK_SEQPACKET)
    other.settimeout(LIVENESS)
    other.connect(str(process.socket))
    other.send(b"\x08\x00")
    assert await asyncio.to_thread(other.recv, 10) == b""
    other.close()
    assert stat.S_IMODE(process.socket.stat().st_mode) == 0o600


async def test_tools_are_told_until_they_are_acknowledged(
    process: SinkProcess, client: TraceClient, attempt: str
) -> None:
    container = container_id()
    sentry = await asyncio.to_thread(Sentry, process.socket, container)
    await client.expect(container)
    await client.bind(container, attempt)
    for pid in (10, 11):
        sentry.send(clone(1, pid), execve(pid, "lint", path="/workspace/tools/bin/lint"), exited(pid, 256, at=250))
    seen = []
    async with asyncio.timeout(LIVENESS):
        async for news in client.watch():
            if news.WhichOneof("news") == "tool" and news.tool.attempt_id == attempt:
                seen.append(news.tool)
                if len(seen) == 2:
                    break
    assert [(run.number, run.name, run.exit_status, run.duration_ns) for run in seen] == [
        (1, "lint", 256, 250_000_000),
        (2, "lint", 256, 250_000_000),
    ]
    await client.acknowledge(attempt, 1)
    sentry.close()
    done = await client.finish(container, attempt, [])
    assert [run.number for run in done.tools] == [2]


async def test_the_ledger_is_recorded_once_however_often_it_is_told(
    process: SinkProcess, client: TraceClient, attempt: str
) -> None:
    container = container_id()
    sentry = await asyncio.to_thread(Sentry, process.socket, container)
    await client.expect(container)
    await client.bind(container, attempt)
    await client.signals(attempt, [("SIGTERM", "soft_timeout")])
    await client.signals(attempt, [("SIGTERM", "soft_timeout")])
    sentry.close()
    ledger = [("SIGTERM", "soft_timeout"), ("SIGKILL", "hard_timeout")]
    first = await client.finish(container, attempt, ledger)
    again = await client.finish(container, attempt, ledger)
    assert [(e["signal"], e["reason"]) for e in process.lines(attempt)] == [(15, "soft_timeout"), (9, "hard_timeout")]
    assert first == again


async def test_thirty_thousand_denials_are_counted_exactly_in_few_lines(
    process: SinkProcess, client: TraceClient, attempt: str
) -> None:
    container = container_id()
    sentry = await asyncio.to_thread(Sentry, process.socket, container)
    await client.expect(container)
    await client.bind(container, attempt)
    sentry.send(clone(1, 10), execve(10, "flood"))
    call = syscall(10, 165, errno=1)

    def flood() -> None:
        for _ in range(30_000):
            sentry.send(call)
        sentry.close()

    await asyncio.to_thread(flood)
    done = await client.finish(container, attempt, [])
    events = process.lines(attempt, "escape_attempt")
    assert done.blocked_syscalls == sum(e.get("count", 1) for e in events) == 30_000
    assert len(events) < 200
    assert not done.session_lost


async def test_a_flood_of_one_sandbox_leaves_the_others_served(
    process: SinkProcess, client: TraceClient, attempt: str
) -> None:
    loud, quiet = container_id(), container_id()
    flooding = await asyncio.to_thread(Sentry, process.socket, loud)
    await client.expect(loud)
    await client.bind(loud, f"{attempt}l")
    stop = threading.Event()

    def flood() -> None:
        number = 0
        while not stop.is_set():
            number = number % 30_000 + 2
            flooding.send(clone(1, number), execve(number, "x" * 500), exited(number))

    task = asyncio.create_task(asyncio.to_thread(flood))
    try:
        async with asyncio.timeout(LIVENESS):
            sentry = await asyncio.to_thread(Sentry, process.socket, quiet)
            await client.expect(quiet)
            await client.bind(quiet, attempt)
            sentry.send(*a_command(10))
            sentry.close()
            done = await client.finish(quiet, attempt, [])
    finally:
        stop.set()
        await task
        flooding.close()
    assert {c.kind: c.events for c in done.counts}["process"] == 2


async def test_kill_9_loses_nothing_that_was_spooled_and_says_the_rest(fresh: SinkProcess, attempt: str) -> None:
    container, client = container_id(), fresh.client()
    sentry = await asyncio.to_thread(Sentry, fresh.socket, container)
    await client.expect(container)
    await client.bind(container, attempt)
    sentry.send(*a_command(10), *[syscall(10, 165, errno=1)] * 150)
    async with asyncio.timeout(LIVENESS):
        async for news in client.watch():
            if news.WhichOneof("news") == "size" and len(fresh.lines(attempt)) == 2:
                break
        await asyncio.to_thread(_until_spooled, fresh, attempt, "escape_attempt", 100)
    fresh.kill()
    sentry.close()
    before = fresh.lines(attempt)
    listener = fresh.listen_for_attach()
    fresh.start()
    with listener:
        handing = asyncio.create_task(asyncio.to_thread(attached, listener))
        assert await client.bind(container, attempt) is True
        name, end = await handing
    assert name == container
    with end:
        # pid 10 of the stand-in's list was there before: known, and not told again.
        end.send(exited(10, 256, ppid=1))
        end.send(clone(1, 12))
        end.send(execve(12, "after"))
        end.send(exited(12))
        end.send(syscall(12, 165, errno=1))
    done = await client.finish(container, attempt, [])
    after = fresh.lines(attempt)
    assert after[: len(before)] == before
    assert event.sequence_problems(after) == []
    told = [(e["event"], e["command_line"]) for e in after[len(before) :] if "gap" not in e]
    assert told == [("process_exit", "sleep 99"), ("process_spawn", "after"), ("process_exit", "after")]
    escapes = fresh.lines(attempt, "escape_attempt")
    assert done.blocked_syscalls == sum(e.get("count", 1) for e in escapes if "gap" not in e)
    await client.close()


async def test_what_was_dropped_is_counted_across_a_restart(fresh: SinkProcess, attempt: str) -> None:
    container, client = container_id(), fresh.client()
    sentry = await asyncio.to_thread(Sentry, fresh.socket, container)
    await client.expect(container)
    await client.bind(container, attempt)
    sentry.send(clone(1, 10), execve(10, "sh"), exited(10, dropped=5))
    await asyncio.to_thread(_until_spooled, fresh, attempt, "process", 3)
    fresh.kill()
    sentry.close()
    fresh.start()
    done = await client.finish(container, attempt, [])
    assert [line["gap"]["reason"] for line in fresh.lines(attempt) if "gap" in line] == [
        "trace_dropped",
        "trace_session_lost",
    ]
    assert (done.dropped, done.session_lost) == (5, True)
    await client.close()


async def test_a_refused_process_is_known_to_every_sink_that_follows(fresh: SinkProcess, attempt: str) -> None:
    container, client = container_id(), fresh.client()
    sentry = await asyncio.to_thread(Sentry, fresh.socket, container)
    await client.expect(container)
    await client.bind(container, attempt)
    sentry.send(*a_command(10), *[syscall(11, 57, errno=11)] * 300, *a_command(12))
    await asyncio.to_thread(_until_spooled, fresh, attempt, "process", 4)
    fresh.kill()
    sentry.close()
    fresh.start()
    done = await client.finish(container, attempt, [])
    assert done.pids_refused
    assert len([line for line in fresh.lines(attempt) if "gap" not in line]) == 4
    await client.close()


async def test_an_attempt_that_was_refused_nothing_says_so(
    process: SinkProcess, client: TraceClient, attempt: str
) -> None:
    container = container_id()
    sentry = await asyncio.to_thread(Sentry, process.socket, container)
    await client.expect(container)
    await client.bind(container, attempt)
    sentry.send(*a_command(10), syscall(11, 57, errno=0), syscall(11, 57, errno=12))
    sentry.close()
    assert not (await client.finish(container, attempt, [])).pids_refused


async def test_a_running_attempt_that_is_bound_anew_says_what_it_missed(fresh: SinkProcess, attempt: str) -> None:
    container, client = container_id(), fresh.client()
    sentry = await asyncio.to_thread(Sentry, fresh.socket, container)
    await client.expect(container)
    await client.bind(container, attempt)
    fresh.kill()
    sentry.close()
    listener = fresh.listen_for_attach()
    fresh.start()
    with listener:
        handing = asyncio.create_task(asyncio.to_thread(attached, listener))
        assert await client.bind(container, attempt, running=True) is True
        _, end = await handing
    assert await client.bind(container, attempt, running=True) is False
    end.close()
    done = await client.finish(container, attempt, [])
    lines = fresh.lines(attempt)
    assert lines[0]["gap"] == {"first": 1, "last": None, "reason": "trace_session_lost"}
    # The stand-in's list has one process, which ends with its sandbox.
    assert [(e["event"], e["command_line"]) for e in lines[1:]] == [("process_exit", "sleep 99")]
    assert done.session_lost
    await client.close()


async def test_an_end_that_a_new_sink_hears_of_first_is_answered_and_stays_the_same(
    fresh: SinkProcess, attempt: str
) -> None:
    container, client = container_id(), fresh.client()
    sentry = await asyncio.to_thread(Sentry, fresh.socket, container)
    await client.expect(container)
    await client.bind(container, attempt)
    sentry.send(*a_command(10))
    await asyncio.to_thread(_until_spooled, fresh, attempt, "process", 2)
    fresh.kill()
    sentry.close()
    fresh.start()
    first = await client.finish(container, attempt, [("SIGKILL", "forced")])
    fresh.kill()
    fresh.start()
    assert await client.finish(container, attempt, [("SIGKILL", "forced")]) == first
    assert first.session_lost
    assert {c.kind: (c.events, c.gaps) for c in first.counts}["process"] == (3, 1)
    assert event.sequence_problems(fresh.lines(attempt)) == []
    await client.close()


async def test_an_ordered_end_spools_everything_that_was_sent(fresh: SinkProcess, attempt: str) -> None:
    container, client = container_id(), fresh.client()
    sentry = await asyncio.to_thread(Sentry, fresh.socket, container)
    await client.expect(container)
    await client.bind(container, attempt)
    await asyncio.to_thread(lambda: [sentry.send(*a_command(pid)) for pid in range(10, 510)])
    await asyncio.to_thread(_until_read, sentry)
    assert await asyncio.to_thread(fresh.kill, signal.SIGTERM) == 0
    sentry.close()
    lines = fresh.lines(attempt)
    assert len(lines) == 1_000
    assert event.sequence_problems(lines) == []
    assert not fresh.socket.exists()
    await client.close()


async def test_an_execve_of_two_mebibytes_is_heard(process: SinkProcess, client: TraceClient, attempt: str) -> None:
    container = container_id()
    sentry = await asyncio.to_thread(Sentry, process.socket, container)
    sentry.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    await client.expect(container)
    await client.bind(container, attempt)
    sentry.send(clone(1, 10))
    words = ["cat", *["w" * 1_000] * 2_000]
    await asyncio.to_thread(sentry.send, execve(10, *words))
    sentry.send(packet(99, _Empty()), exited(10))
    sentry.close()
    await client.finish(container, attempt, [])
    spawned = process.lines(attempt)[0]
    assert len(spawned["command_line"]) == event.COMMAND_LINE_BYTES
    assert spawned["command_line_sha256"].startswith("sha256:")


class _Empty:
    def SerializeToString(self) -> bytes:
        return b""
