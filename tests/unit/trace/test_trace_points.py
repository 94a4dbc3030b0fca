"""The decoder of a sentry's packets: what it reads, and that nothing but PointError comes of rubbish."""

from __future__ import annotations

import pytest
from gauntlet.telemetry.v1 import trace_points_pb2 as pb
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.trace.points import (
    HEADER,
    MAX_PID,
    Called,
    Cloned,
    Executed,
    Exited,
    Packet,
    PointError,
    Started,
    Who,
    decode,
    handshake,
)
from tests.support import sentry

CONTAINER = "ab" * 32


def test_every_kind_is_read() -> None:
    assert decode(sentry.start(CONTAINER)).point == Started(CONTAINER)
    assert decode(sentry.clone(1, 7, 0x11, at=5)).point == Cloned(Who(1_005_000_000, 1, 1, 1), 7, 0x11)
    run = decode(sentry.execve(7, "sh", b"-c\xff", path="/bin/dash")).point
    assert run == Executed(Who(1_000_000_000, 7, 7, 1), b"/bin/dash", (b"sh", b"-c\xff"), False)
    assert decode(sentry.exited(7, 1280)).point == Exited(Who(1_000_000_000, 7, 7, 1), 1280)
    refused = decode(sentry.syscall(7, 165, 1, 2, 3, errno=1, dropped=9))
    assert refused == Packet(9, Called(Who(1_000_000_000, 7, 7, 1), 165, (1, 2, 3), True, 1))
    begun = decode(sentry.syscall(7, 62, -1, 9)).point
    assert isinstance(begun, Called)
    assert not begun.ended
    succeeded = decode(sentry.syscall(7, 62, errno=0)).point
    assert isinstance(succeeded, Called)
    assert succeeded.ended


def test_an_unknown_type_is_left_out_but_its_drops_count() -> None:
    assert decode(HEADER.pack(8, 34, 3) + b"whatever") == Packet(3, None)


def test_a_longer_header_is_skipped() -> None:
    body = sentry.exited(7, 0)[HEADER.size :]
    assert decode(HEADER.pack(12, 4, 0) + b"more" + body) == decode(sentry.exited(7, 0))


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"\x08\x00\x04",
        HEADER.pack(7, 4, 0) + b"x",
        HEADER.pack(60_000, 4, 0) + b"x",
        HEADER.pack(9, 4, 0),
        HEADER.pack(8, 4, 0) + b"\x0a\xff\xff\xff\xff\x0f",
        sentry.packet(1, pb.PointContainerStart(id=b"../../etc/passwd")),
        sentry.packet(1, pb.PointContainerStart(id=b"AB" * 32)),
        sentry.packet(2, pb.PointClone(created_thread_group_id=0)),
        sentry.packet(2, pb.PointClone(created_thread_group_id=-5)),
        sentry.packet(4, pb.PointExit(context_data=pb.PointContext(thread_group_id=MAX_PID + 1))),
        sentry.packet(4, pb.PointExit(context_data=pb.PointContext(parent_thread_group_id=-1))),
        sentry.packet(4, pb.PointExit(exit_status=1 << 20)),
        sentry.packet(4, pb.PointExit(exit_status=-1)),
        sentry.packet(6, pb.PointSyscall(sysno=165, exit=pb.PointResult(errorno=1 << 40))),
    ],
)
def test_what_no_honest_sentry_sends_is_refused(packet: bytes) -> None:
    with pytest.raises(PointError):
        decode(packet)


@settings(deadline=None)
@given(st.binary(max_size=400))
def test_random_bytes_are_a_packet_or_an_error(data: bytes) -> None:
    check(data)


@settings(deadline=None)
@given(
    st.sampled_from([1, 2, 3, 4, 5, 6, 7, 65_535]),
    st.integers(0, 70),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=400),
)
def test_a_header_with_random_bytes_is_a_packet_or_an_error(kind: int, size: int, dropped: int, body: bytes) -> None:
    check(HEADER.pack(size, kind, dropped) + body)


@settings(deadline=None)
@given(st.data())
def test_a_bent_message_is_a_packet_or_an_error(data: st.DataObject) -> None:
    whole = bytearray(
        data.draw(
            st.sampled_from(
                [
                    sentry.start(CONTAINER),
                    sentry.clone(1, 7),
                    sentry.execve(7, "sh", "-c", "x" * 200),
                    sentry.exited(7, 9),
                    sentry.syscall(7, 165, 1, 2, 3, errno=1),
                ]
            )
        )
    )
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    check(bytes(whole[: data.draw(st.integers(0, len(whole)))]))


def check(packet: bytes) -> None:
    """Whatever the bytes: PointError, or values in range."""
    try:
        dropped, point = decode(packet)
    except PointError:
        return
    assert 0 <= dropped < 2**32
    if point is None:
        return
    if isinstance(point, Started):
        assert len(point.container_id) == 64
        return
    made = point.who
    assert made.time_ns >= 0
    assert all(0 <= number <= MAX_PID for number in (made.tid, made.pid, made.ppid))
    match point:
        case Cloned():
            assert 0 < point.pid <= MAX_PID
        case Exited():
            assert 0 <= point.status <= 0xFFFF
        case Called():
            assert 0 <= point.errno < 4096
            assert all(0 <= value < 2**64 for value in point.arguments)


def test_the_handshake_is_answered_and_another_protocol_refused() -> None:
    assert handshake(b"\x08\x01") == b"\x08\x01"
    assert handshake(b"\x08\x05") == b"\x08\x01"
    for packet in (b"", b"\x08\x00", b"\xff\xff", b"x" * 1000):
        with pytest.raises(PointError):
            handshake(packet)
