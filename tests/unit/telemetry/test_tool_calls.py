"""What a call of the agent leaves in its event and in the blob store."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from daemon.telemetry.tool_calls import MAX_ARGUMENTS_BYTES, MEMORY_BYTES, Budget, ToolCall
from formats import event
from records.blobs import BlobStore


class Times:
    def __init__(self) -> None:
        self.now = 5_000_000

    def monotonic_ns(self) -> int:
        self.now += 1_500_000
        return self.now


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs", max_bytes=1 << 20)


def begin(blobs: BlobStore, name: str = "exec", budget: Budget | None = None, **arguments: object) -> ToolCall:
    return ToolCall(name, arguments, blobs, budget or Budget(), lambda: 1_800, Times().monotonic_ns)


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


async def test_the_fields_are_the_specifications(blobs: BlobStore) -> None:
    call = begin(blobs, argv=["make", "test"], cwd="/workspace")
    call.output(b"out")
    call.output(b"err")
    call.end(exit_code=2, truncated=True, output_bytes=7)
    fields = await call.fields()
    assert fields == {
        "timestamp_ns": 1_800,
        "tool_name": "exec",
        "arguments": {"argv": ["make", "test"], "cwd": "/workspace"},
        "result_summary": "outerr",
        "duration_ms": 1.5,
        "exit_code": 2,
        "signal": None,
        "timed_out": False,
        "truncated": True,
        "output_bytes": 7,
    }
    line = event.decode(event.encode("tool_invocation", "att_1", 1, fields))
    assert line["tool_name"] == "exec"


async def test_a_death_by_signal_has_a_number_and_no_exit_code(blobs: BlobStore) -> None:
    call = begin(blobs, argv=["sleep", "9"])
    call.end(signal=9, timed_out=True)
    fields = await call.fields()
    assert (fields["exit_code"], fields["signal"], fields["timed_out"]) == (None, 9, True)


@pytest.mark.parametrize("pieces", [[b"a" * 5_000], [b"a"] * 2_000, [b"a" * 1_023, b"b" * 10]])
async def test_the_summary_is_the_first_bytes_and_the_count_is_true(blobs: BlobStore, pieces: list[bytes]) -> None:
    call = begin(blobs)
    for piece in pieces:
        call.output(piece)
    call.end(exit_code=0)
    fields = await call.fields()
    whole = b"".join(pieces)
    assert fields["result_summary"] == whole[:1_024].decode()
    assert fields["output_bytes"] == len(whole)


async def test_bytes_that_are_no_text_still_fit_a_line(blobs: BlobStore) -> None:
    call = begin(blobs, argv=["\ud800", "\0", "ü"])
    call.output(b"\0\xff" * 400 + "€".encode()[:2])
    call.end(exit_code=0)
    line = event.encode("tool_invocation", "att_1", 1, await call.fields())
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert event.decode(line)["result_summary"].startswith("\0\ufffd")


@pytest.mark.parametrize("size", [0, 1, MEMORY_BYTES, MEMORY_BYTES + 1, 5 * MEMORY_BYTES])
async def test_written_bytes_go_to_the_blob_store_by_digest(blobs: BlobStore, size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    call = begin(blobs, "write_file", path="a.py")
    await call.content("content", b"")
    for first in range(0, size, 50_000):
        await call.content("content", data[first : first + 50_000])
    call.end(exit_code=0)
    arguments = (await call.fields())["arguments"]
    wanted = {"sha256": digest(data), "size_bytes": size, "stored": True}
    assert arguments == {"path": "a.py", "content": wanted}
    assert blobs.get(digest(data)) == data
    assert list((blobs.root / "tmp").iterdir()) == []


async def test_content_past_the_budget_or_the_cap_is_digested_and_not_kept(blobs: BlobStore) -> None:
    budget = Budget(left=100)
    call = begin(blobs, budget=budget)
    await call.content("stdin", b"x" * 60)
    await call.content("stdin", b"x" * 60)
    await call.content("stdin", b"x" * 5)
    call.end(exit_code=0)
    wanted = {"sha256": digest(b"x" * 125), "size_bytes": 125, "stored": False}
    assert (await call.fields())["arguments"]["stdin"] == wanted
    large = begin(blobs)
    for _ in range(3):
        await large.content("stdin", b"y" * 700_000)
    large.end(exit_code=0)
    stdin = (await large.fields())["arguments"]["stdin"]
    assert (stdin["size_bytes"], stdin["stored"]) == (2_100_000, False)
    assert not blobs.contains(stdin["sha256"])
    assert list((blobs.root / "tmp").iterdir()) == []


async def test_an_abandoned_call_leaves_no_file(blobs: BlobStore) -> None:
    call = begin(blobs)
    await call.content("stdin", b"x" * 200_000)
    assert len(list((blobs.root / "tmp").iterdir())) == 1
    call.abort()
    assert list((blobs.root / "tmp").iterdir()) == []


async def test_arguments_too_long_for_a_line_are_kept_whole_elsewhere(blobs: BlobStore) -> None:
    argv = ["sh", "-c", "x" * 2 * MAX_ARGUMENTS_BYTES]
    call = begin(blobs, argv=argv)
    await call.content("stdin", b"in")
    call.end(exit_code=0)
    arguments = (await call.fields())["arguments"]
    assert arguments["truncated"] is True
    assert arguments["preview"].startswith('{"argv":["sh","-c","xxx')
    assert json.loads(blobs.get(arguments["sha256"])) == {"argv": argv}
    assert arguments["stdin"]["size_bytes"] == 2
    event.encode("tool_invocation", "att_1", 1, await call.fields())


async def test_an_error_or_a_listing_stands_in_for_missing_output_only(blobs: BlobStore) -> None:
    failed = begin(blobs, "read_file")
    failed.end(exit_code=1, result="No such file" * 200)
    assert len((await failed.fields())["result_summary"]) == 1_024
    spoke = begin(blobs)
    spoke.output(b"real")
    spoke.end(exit_code=0, result="other")
    assert (await spoke.fields())["result_summary"] == "real"


async def test_the_first_end_counts_and_a_call_without_one_is_an_error(blobs: BlobStore) -> None:
    call = begin(blobs)
    with pytest.raises(ValueError, match="not ended"):
        await call.fields()
    call.end(exit_code=3)
    call.end(signal=9)
    assert (await call.fields())["exit_code"] == 3
