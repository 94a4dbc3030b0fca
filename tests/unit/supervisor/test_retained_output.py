"""Retained output: true offsets, a hard cap, readers that never hold anyone up."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.supervisor.output import RetainedOutput


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=20), st.integers(0, 200), st.integers(0, 250))
def test_reads_are_slices_of_what_was_written(chunks: list[bytes], cap: int, offset: int) -> None:
    whole, kept = b"".join(chunks), RetainedOutput(cap)
    at = 0
    for chunk in chunks:
        kept.append(at, chunk)
        at += len(chunk)
    assert kept.read(offset, 10_000) == whole[:cap][offset:]
    assert kept.total == len(whole)
    assert kept.truncated == (len(whole) > cap)


def test_bytes_past_the_supervisors_cap_are_counted_at_the_end() -> None:
    kept = RetainedOutput(4)
    kept.append(0, b"abcd")
    kept.close(1_000_000)
    assert (kept.total, kept.truncated, kept.read(0)) == (1_000_000, True, b"abcd")


def test_adopted_output_begins_where_it_was_heard() -> None:
    kept = RetainedOutput(100)
    kept.append(70, b"late")
    assert (kept.base, kept.end, kept.total) == (70, 74, 74)
    assert kept.read(72) == b"te"
    assert kept.truncated
    with pytest.raises(ValueError, match="first kept byte 70"):
        kept.read(0)


def test_bytes_after_a_gap_are_never_given_a_wrong_offset() -> None:
    kept = RetainedOutput(100)
    kept.append(0, b"ab")
    kept.append(10, b"zz")
    assert (kept.read(0), kept.total, kept.truncated) == (b"ab", 12, True)


async def test_wait_more_wakes_every_reader() -> None:
    kept = RetainedOutput(100)
    readers = [asyncio.create_task(kept.wait_more(at)) for at in (0, 1, 5)]
    await asyncio.sleep(0)
    kept.append(0, b"abc")
    assert await readers[0]
    assert await readers[1]
    assert not readers[2].done()
    kept.close()
    assert not await readers[2]


async def test_wait_more_ends_at_the_cap() -> None:
    kept = RetainedOutput(3)
    kept.append(0, b"abcdef")
    assert await kept.wait_more(0)
    assert not await kept.wait_more(3)


async def test_a_cancelled_reader_leaves_nothing() -> None:
    kept = RetainedOutput(3)
    reader = asyncio.create_task(kept.wait_more(0))
    await asyncio.sleep(0)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    kept.append(0, b"x")
    assert not kept._waiters
