"""The frame codec: golden bytes, refusals, and any cut of any bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.supervisor.errors import ProtocolError
from daemon.supervisor.frames import HEADER_SIZE, MAX_PAYLOAD, PREAMBLE, Decoder, Frame, FrameType, encode

VECTORS = json.loads(
    (Path(__file__).resolve().parents[3] / "images" / "supervisor" / "testdata" / "frames.json").read_text()
)

frames = st.builds(
    Frame,
    type=st.integers(0, 255),
    flags=st.integers(0, 255),
    stream=st.integers(0, 2**32 - 1),
    offset=st.integers(0, 2**64 - 1),
    payload=st.binary(max_size=300),
)


def decode_in_pieces(data: bytes, size: int) -> list[Frame]:
    decoder = Decoder()
    return [f for at in range(0, len(data), size) for f in decoder.feed(data[at : at + size])]


@pytest.mark.parametrize("vector", VECTORS["valid"], ids=lambda v: v["name"])
def test_golden_frame_both_ways(vector: dict[str, Any]) -> None:
    frame = Frame(
        vector["type"], vector["flags"], vector["stream"], vector["offset"], bytes.fromhex(vector["payload_hex"])
    )
    raw = bytes.fromhex(vector["frame_hex"])
    assert encode(frame) == raw
    assert decode_in_pieces(raw, 1) == [frame]


@pytest.mark.parametrize("vector", VECTORS["invalid"], ids=lambda v: v["name"])
def test_invalid_bytes_end_the_link(vector: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        decode_in_pieces(bytes.fromhex(vector["bytes_hex"]), 7)


def test_there_are_vectors() -> None:
    assert len(VECTORS["valid"]) >= 8
    assert len(VECTORS["invalid"]) >= 4


@given(st.lists(frames, max_size=8), st.integers(1, 200))
def test_any_cut_gives_the_same_frames(sent: list[Frame], size: int) -> None:
    assert decode_in_pieces(b"".join(map(encode, sent)), size) == sent


@settings(max_examples=300)
@given(st.binary(max_size=400), st.integers(1, 50))
def test_arbitrary_bytes_never_make_up_a_frame(data: bytes, size: int) -> None:
    try:
        got = decode_in_pieces(data, size)
    except ProtocolError:
        return
    assert all(encode(f) in data for f in got)


@settings(max_examples=200)
@given(frames, st.data())
def test_a_flipped_bit_is_seen(frame: Frame, data: st.DataObject) -> None:
    raw = bytearray(encode(frame))
    at = data.draw(st.integers(0, len(raw) * 8 - 1))
    raw[at // 8] ^= 1 << at % 8
    with pytest.raises(ProtocolError):
        decode_in_pieces(bytes(raw), 64)


@given(st.binary(max_size=300), frames, st.integers(1, 60))
def test_everything_before_the_marker_is_discarded(noise: bytes, after: Frame, size: int) -> None:
    marker = encode(Frame(FrameType.SYNC_ACK, payload=b"0123456789abcdef"))
    decoder = Decoder()
    decoder.after(marker)
    stream = noise + marker[:20] + marker + encode(after)
    got = [f for at in range(0, len(stream), size) for f in decoder.feed(stream[at : at + size])]
    assert got == [after]
    assert decoder.synchronised


def test_waiting_for_a_marker_is_bounded() -> None:
    decoder = Decoder()
    decoder.after(encode(Frame(FrameType.SYNC_ACK, payload=bytes(16))))
    for _ in range(100):
        assert list(decoder.feed(b"\xff" * 10_000)) == []
    assert decoder.buffered < 100
    assert not decoder.synchronised


def test_payload_limit_both_ways() -> None:
    largest = Frame(FrameType.STDIN, payload=bytes(MAX_PAYLOAD))
    assert decode_in_pieces(encode(largest), 100_000) == [largest]
    with pytest.raises(ValueError, match="at most"):
        encode(Frame(FrameType.STDIN, payload=bytes(MAX_PAYLOAD + 1)))


def test_preamble_outlasts_a_torn_frame_and_still_holds_a_whole_run() -> None:
    assert len(PREAMBLE) == 2 * (MAX_PAYLOAD + HEADER_SIZE)
    assert not any(PREAMBLE)
