"""The link against a scripted peer: handshake, refusals, and that no call outlives the connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from daemon.supervisor import wire as wire_module
from daemon.supervisor.errors import (
    CallFailed,
    ExecRefused,
    FileFailed,
    ProtocolError,
    StdinClosed,
    StdinGap,
    SupervisorGone,
    TooManyExecs,
)
from daemon.supervisor.execs import WINDOW
from daemon.supervisor.frames import CHUNK, FLAG_CLOSED, Frame, FrameType
from daemon.supervisor.link import MAX_EXECS, SupervisorLink
from daemon.supervisor.types import ExecSpec, Exited, Output, Started
from tests.support.scripted_transport import ScriptedTransport

READY: dict[str, Any] = {
    "protocol": 1,
    "pid": 1,
    "boot_id": "b",
    "assigned": None,
    "next_stream": 1,
    "execs": [],
}
RESULT: dict[str, Any] = {
    "exit_code": 0,
    "signal": None,
    "timed_out": False,
    "duration_ns": 5,
    "stdout_total": 0,
    "stderr_total": 0,
    "stdout_shipped": 0,
    "stderr_shipped": 0,
    "error": None,
    "error_errno": None,
}


def control(kind: FrameType, stream: int, body: dict[str, Any]) -> Frame:
    return Frame(kind, stream=stream, payload=json.dumps(body).encode())


async def greet(peer: ScriptedTransport, **ready: Any) -> None:
    sync = await peer.expect(FrameType.SYNC)
    peer.say(Frame(FrameType.SYNC_ACK, payload=sync.payload))
    hello = await peer.expect(FrameType.HELLO)
    peer.say(control(FrameType.READY, hello.stream, READY | ready))


async def connected(peer: ScriptedTransport, **ready: Any) -> SupervisorLink:
    link = SupervisorLink(peer)
    await asyncio.gather(link.connect(), greet(peer, **ready))
    return link


async def started(peer: ScriptedTransport, link: SupervisorLink, **spec: Any) -> Any:
    task = asyncio.create_task(link.exec(ExecSpec(["x"], **spec), exec_id=f"e{len(link.execs)}"))
    frame = await peer.expect(FrameType.EXEC)
    peer.say(control(FrameType.STARTED, frame.stream, {"pid": 7}))
    return await task


@pytest.fixture
async def peer() -> AsyncIterator[ScriptedTransport]:
    async with asyncio.timeout(20):
        yield ScriptedTransport()


async def test_everything_before_our_own_sync_is_discarded(peer: ScriptedTransport) -> None:
    link = SupervisorLink(peer, fresh=False)
    joining = asyncio.create_task(link.connect())
    sync = await peer.expect(FrameType.SYNC)
    assert peer.preambles == 1
    old = Frame(FrameType.SYNC_ACK, payload=bytes(16))  # an earlier client's answer
    forged = control(FrameType.READY, 1, READY | {"boot_id": "forged"})
    peer.say(old, forged, before=b"half a frame of somebody else")
    assert not joining.done()
    peer.say(Frame(FrameType.SYNC_ACK, payload=sync.payload))
    hello = await peer.expect(FrameType.HELLO)
    peer.say(control(FrameType.READY, hello.stream, READY))
    assert (await joining).boot_id == "b"
    await link.close()


async def test_resync_is_repeated_until_heard(peer: ScriptedTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_module, "RESYNC_SECONDS", 0.01)
    link = SupervisorLink(peer, fresh=False)
    joining = asyncio.create_task(link.connect())
    first = await peer.expect(FrameType.SYNC)
    second = await peer.expect(FrameType.SYNC)
    assert peer.preambles >= 2
    assert first.payload == second.payload
    peer.say(Frame(FrameType.SYNC_ACK, payload=second.payload), Frame(FrameType.SYNC_ACK, payload=second.payload))
    while (frame := await peer.frame()).type != FrameType.HELLO:
        assert frame.type == FrameType.SYNC
    peer.say(control(FrameType.READY, frame.stream, READY))
    await joining
    await link.close()


async def test_another_protocol_version_is_an_error(peer: ScriptedTransport) -> None:
    link = SupervisorLink(peer)

    async def refuse() -> None:
        sync = await peer.expect(FrameType.SYNC)
        peer.say(Frame(FrameType.SYNC_ACK, payload=sync.payload))
        hello = await peer.expect(FrameType.HELLO)
        peer.say(control(FrameType.ERROR, hello.stream, {"code": "VERSION", "message": "speaks 2"}))

    with pytest.raises(ProtocolError, match="speaks 2"):
        await asyncio.gather(link.connect(), refuse())
    await link.close()


async def read_it(link: SupervisorLink) -> None:
    async for _ in link.read_file("f"):
        pass


async def wait_exec(link: SupervisorLink) -> None:
    await (await link.exec(ExecSpec(["x"]), exec_id="e")).wait()


CALLS: dict[str, Callable[[SupervisorLink], Coroutine[Any, Any, Any]]] = {
    "ping": lambda link: link.ping(),
    "assign": lambda link: link.assign({}),
    "exec": wait_exec,
    "list_execs": lambda link: link.list_execs(),
    "signal": lambda link: link.signal("e", 9),
    "kill_all": lambda link: link.kill_all(9),
    "read": read_it,
    "write": lambda link: link.write_file("f", b"x"),
    "list": lambda link: link.list_dir("d"),
    "stat": lambda link: link.stat("f"),
    "mkdir": lambda link: link.mkdir("d"),
    "remove": lambda link: link.remove("d"),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("how", ["eof", "rubbish", "close"])
async def test_no_call_outlives_the_connection(peer: ScriptedTransport, name: str, how: str) -> None:
    link = await connected(peer)
    call = asyncio.create_task(CALLS[name](link))
    await peer.frame()
    assert not call.done()
    if how == "eof":
        peer.hang_up()
    elif how == "rubbish":
        peer.say(before=b"x" * 64)
    else:
        await link.close()
    with pytest.raises(SupervisorGone):
        await call
    with pytest.raises(SupervisorGone):  # and so does every later one
        await CALLS[name](link)
    await link.gone()
    await link.close()


async def test_the_end_tells_pid_1s_last_words(peer: ScriptedTransport) -> None:
    link = await connected(peer)
    peer.hang_up()
    await link.gone()
    with pytest.raises(SupervisorGone, match="last words"):
        await link.ping()
    await link.close()


async def test_a_broken_pipe_ends_the_link(peer: ScriptedTransport) -> None:
    link = await connected(peer)
    peer.broken = True
    with pytest.raises(SupervisorGone, match="peer is gone"):
        await link.ping()
    await link.close()


async def test_events_can_be_read_twice_and_late(peer: ScriptedTransport) -> None:
    link = await connected(peer)
    handle = await started(peer, link)
    early = asyncio.create_task(collect(handle.events()))
    peer.say(
        Frame(FrameType.STDOUT, stream=handle.stream, payload=b"out"),
        Frame(FrameType.STDERR, stream=handle.stream, payload=b"err"),
        Frame(FrameType.STDOUT, stream=handle.stream, offset=3, payload=b"more"),
        control(FrameType.EXITED, handle.stream, RESULT | {"stdout_total": 7, "stderr_total": 3}),
    )
    result = await handle.wait()
    assert not result.truncated or result.stdout_shipped == 0
    assert await early == await collect(handle)
    assert await collect(handle) == [
        Started(7),
        Output("stdout", 0, b"outmore"),
        Output("stderr", 0, b"err"),
        Exited(result),
    ]
    assert await collect(handle.events(stdout_offset=5)) == [
        Started(7),
        Output("stdout", 5, b"re"),
        Output("stderr", 0, b"err"),
        Exited(result),
    ]
    assert handle.head == b"outerrmore"
    assert "e0" not in link.execs
    await link.close()


async def collect(events: Any) -> list[Any]:
    return [event async for event in events]


@pytest.mark.parametrize(("code", "kind"), [("NOT_ASSIGNED", ExecRefused), ("TOO_MANY_EXECS", TooManyExecs)])
async def test_refusals_are_typed_and_leave_nothing(
    peer: ScriptedTransport, code: str, kind: type[ExecRefused]
) -> None:
    link = await connected(peer)
    task = asyncio.create_task(link.exec(ExecSpec(["x"]), exec_id="e"))
    frame = await peer.expect(FrameType.EXEC)
    peer.say(control(FrameType.REFUSED, frame.stream, {"code": code, "message": "no"}))
    with pytest.raises(kind) as caught:
        await task
    assert caught.value.code == code
    assert not link.execs
    await link.close()


async def test_the_33rd_exec_is_refused_here_already(peer: ScriptedTransport) -> None:
    link = await connected(peer)
    for _ in range(MAX_EXECS):
        await started(peer, link)
    with pytest.raises(TooManyExecs):
        await link.exec(ExecSpec(["x"]), exec_id="one more")
    with pytest.raises(ExecRefused, match="DUPLICATE"):
        await link.exec(ExecSpec(["x"]), exec_id="e3")
    await link.close()


async def test_stdin_keeps_to_the_window(peer: ScriptedTransport) -> None:
    link = await connected(peer)
    handle = await started(peer, link, stdin=True)
    writing = asyncio.create_task(link.write_stdin("e0", 0, bytes(WINDOW + CHUNK), True))
    sent = 0
    while sent < WINDOW:
        sent += len((await peer.expect(FrameType.STDIN)).payload)
    ping = asyncio.create_task(link.ping())  # whatever was to be sent before it has been sent
    frame = await peer.expect(FrameType.PING)
    peer.say(Frame(FrameType.PONG, stream=frame.stream))
    await ping
    assert not writing.done()
    peer.say(Frame(FrameType.STDIN_ACK, stream=handle.stream, offset=CHUNK))
    last = await peer.expect(FrameType.STDIN)
    assert (last.offset, last.flags) == (WINDOW, 1)
    assert await writing == WINDOW + CHUNK
    await link.close()


async def test_stdin_offsets(peer: ScriptedTransport) -> None:
    link = await connected(peer)
    handle = await started(peer, link, stdin=True)
    assert await link.write_stdin("e0", 0, b"abcd") == 4
    assert (await peer.frame()).payload == b"abcd"
    assert await link.write_stdin("e0", 2, b"cdef") == 6  # a retry that overlaps
    assert (await peer.frame()).payload == b"ef"
    with pytest.raises(StdinGap) as gap:
        await link.write_stdin("e0", 9, b"z")
    assert gap.value.expected == 6
    peer.say(Frame(FrameType.STDIN_ACK, FLAG_CLOSED, handle.stream, 5))
    with pytest.raises(StdinClosed) as closed:
        while True:
            await link.write_stdin("e0", 6, b"")
            await link.write_stdin("e0", handle.stdin_sent, b"y")
    assert closed.value.accepted == 5
    with pytest.raises(KeyError):
        await link.write_stdin("never", 0, b"")
    await link.close()


async def test_streams_start_above_an_earlier_clients(peer: ScriptedTransport) -> None:
    live = {
        "exec_id": "old",
        "stream": 40,
        "pid": 9,
        "stdout_total": 100,
        "stderr_total": 0,
        "stdin_received": 11,
        "max_output_bytes": 1000,
        "result": None,
    }
    link = await connected(peer, next_stream=41, execs=[live])
    handle = link.execs["old"]
    assert (handle.pid, handle.stdin_sent) == (9, 11)
    peer.say(Frame(FrameType.STDOUT, stream=40, offset=100, payload=b"on"))
    reading = asyncio.create_task(link.ping())
    ping = await peer.expect(FrameType.PING)
    assert ping.stream >= 41
    peer.say(Frame(FrameType.PONG, stream=ping.stream))
    await reading
    assert (handle.stdout.base, handle.stdout.read(100)) == (100, b"on")
    await link.close()


async def test_an_end_right_behind_ready_is_heard(peer: ScriptedTransport) -> None:
    live = {
        "exec_id": "old",
        "stream": 40,
        "pid": 9,
        "stdout_total": 0,
        "stderr_total": 0,
        "stdin_received": 0,
        "max_output_bytes": 1000,
        "result": None,
    }
    link = SupervisorLink(peer)
    joining = asyncio.create_task(link.connect())
    sync = await peer.expect(FrameType.SYNC)
    peer.say(Frame(FrameType.SYNC_ACK, payload=sync.payload))
    hello = await peer.expect(FrameType.HELLO)
    peer.say(
        control(FrameType.READY, hello.stream, READY | {"next_stream": 41, "execs": [live]}),
        Frame(FrameType.STDOUT, stream=40, payload=b"last"),
        control(FrameType.EXITED, 40, RESULT | {"stdout_total": 4}),
    )
    await joining
    assert not link.execs
    with pytest.raises(StdinClosed):
        await link.write_stdin("old", 0, b"")
    await link.close()


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"size":"x","sha256":1,"file_size":null}', b"\xff"])
async def test_an_answer_the_agent_forged_fails_its_own_call_only(peer: ScriptedTransport, body: bytes) -> None:
    link = await connected(peer)
    for kind in (FrameType.FILE_REPLY, FrameType.FILE_ERROR):
        call = asyncio.create_task(link.stat("f"))
        opened = await peer.expect(FrameType.FILE_OPEN)
        peer.say(Frame(kind, stream=opened.stream, payload=body))
        with pytest.raises(FileFailed):
            await call
    ping = asyncio.create_task(link.ping())
    peer.say(Frame(FrameType.PONG, stream=(await peer.expect(FrameType.PING)).stream))
    await ping
    await link.close()


@pytest.mark.parametrize("kind", [FrameType.STARTED, FrameType.EXITED, FrameType.REFUSED])
async def test_nonsense_from_pid_1_ends_the_link(peer: ScriptedTransport, kind: FrameType) -> None:
    link = await connected(peer)
    call = asyncio.create_task(link.exec(ExecSpec(["x"]), exec_id="e"))
    frame = await peer.expect(FrameType.EXEC)
    peer.say(control(kind, frame.stream, {}))
    with pytest.raises(SupervisorGone):
        await call
    await link.close()


async def test_call_errors_are_typed(peer: ScriptedTransport) -> None:
    link = await connected(peer)
    call = asyncio.create_task(link.assign({"A": "b"}))
    frame = await peer.expect(FrameType.ASSIGN)
    peer.say(control(FrameType.ERROR, frame.stream, {"code": "ALREADY_ASSIGNED", "message": "m"}))
    with pytest.raises(CallFailed) as caught:
        await call
    assert caught.value.code == "ALREADY_ASSIGNED"
    await link.close()


async def test_a_reader_that_stops_early_aborts_and_frees_its_turn(peer: ScriptedTransport) -> None:
    link = await connected(peer)
    for _ in range(20):  # more than may run at once
        reader = link.read_file("f")

        async def first(reader: Any = reader) -> bytes:
            async for chunk in reader:
                return bytes(chunk)
            return b""

        reading = asyncio.create_task(first())
        opened = await peer.expect(FrameType.FILE_OPEN)
        peer.say(Frame(FrameType.FILE_DATA, stream=opened.stream, payload=b"abc"))
        assert await reading == b"abc"
        await reader.aclose()
        assert (await peer.expect(FrameType.FILE_ABORT)).stream == opened.stream
        peer.say(control(FrameType.FILE_ERROR, opened.stream, {"errno": "ECANCELED", "message": ""}))
    await link.close()


async def test_a_read_whose_digest_differs_fails(peer: ScriptedTransport) -> None:
    link = await connected(peer)
    reading = asyncio.create_task(link.read_file("f").read_all(100))
    opened = await peer.expect(FrameType.FILE_OPEN)
    peer.say(
        Frame(FrameType.FILE_DATA, stream=opened.stream, payload=b"abc"),
        control(FrameType.FILE_REPLY, opened.stream, {"size": 3, "sha256": "0" * 64, "file_size": 3}),
    )
    with pytest.raises(FileFailed) as caught:
        await reading
    assert caught.value.errno_name == "DIGEST_MISMATCH"
    await link.close()
