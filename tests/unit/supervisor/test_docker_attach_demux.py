"""Docker's attach stream: frames from stdout, log lines from stderr, however the bytes are cut."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.supervisor.docker_transport import DockerAttachTransport
from daemon.supervisor.errors import ProtocolError
from daemon.supervisor.streams import LOG_BYTES


def block(kind: int, data: bytes) -> bytes:
    return struct.pack(">BxxxI", kind, len(data)) + data


async def read_everything(sent: bytes, cut: int) -> tuple[bytes, str]:
    ours, theirs = socket.socketpair()
    transport = await DockerAttachTransport.over(ours)
    _, writer = await asyncio.open_connection(sock=theirs)

    async def feed() -> None:
        for at in range(0, len(sent), cut):
            writer.write(sent[at : at + cut])
            await writer.drain()
            await asyncio.sleep(0)
        writer.close()
        await writer.wait_closed()

    feeding = asyncio.create_task(feed())
    got = b""
    try:
        while data := await transport.read(1000):
            got += data
        await feeding
        return got, transport.diagnosis()
    finally:
        feeding.cancel()
        writer.close()
        await transport.close()


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=50)), max_size=8), st.integers(1, 30))
def test_streams_are_told_apart(blocks: list[tuple[int, bytes]], cut: int) -> None:
    sent = b"".join(block(kind, data) for kind, data in blocks)
    got, log = asyncio.run(read_everything(sent, cut))
    assert got == b"".join(data for kind, data in blocks if kind == 1)
    told = b"".join(data for kind, data in blocks if kind == 2)
    assert log == told.decode("utf-8", "backslashreplace").strip()


async def test_the_log_is_bounded() -> None:
    _, log = await read_everything(block(2, b"x" * 100_000), 10_000)
    assert len(log) == LOG_BYTES


async def test_a_tty_container_is_recognised() -> None:
    with pytest.raises(ProtocolError, match="tty"):
        await read_everything(b"GSF\x01 raw bytes without headers", 100)


async def test_a_stream_cut_in_a_header_just_ends() -> None:
    got, _ = await read_everything(block(1, b"abc") + b"\x01\0\0", 100)
    assert got == b"abc"


async def test_close_ends_a_blocked_read_and_may_be_repeated() -> None:
    ours, theirs = socket.socketpair()
    transport = await DockerAttachTransport.over(ours)
    reading = asyncio.create_task(transport.read(10))
    await asyncio.sleep(0)
    await transport.close()
    await transport.close()
    async with asyncio.timeout(10):
        assert await reading == b""
    theirs.close()
