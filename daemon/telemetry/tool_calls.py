"""One call of the agent, as it becomes a tool_invocation event.

Keeps the first bytes of output in arrival order, counts the rest, and hands the bytes that the agent wrote to the
blob store, so that an attempt can be replayed. `arguments` is always an object: an exec's holds `argv`, `cwd` and so
on, written bytes stand as `{sha256, size_bytes, stored}`. Owns no sequence and no spool.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from daemon.telemetry.saying import say
from formats import event
from formats.canonical import DIGEST_PREFIX
from records.blobs import BlobStore, BlobWriter
from records.errors import BlobTooLargeError

# Larger arguments go to the blob store whole; the event keeps their digest and their beginning.
MAX_ARGUMENTS_BYTES = 32 * 1_024
PREVIEW_CHARACTERS = 4_096
# Content up to this size stays in memory until the call's end: one write instead of several.
MEMORY_BYTES = 64 * 1_024
# What one attempt may leave in the blob store. Past it, content is digested and not kept.
BUDGET_BYTES = 1 << 30


@dataclass(slots=True)
class Budget:
    """What is left of an attempt's share of the blob store."""

    left: int = BUDGET_BYTES

    def take(self, size: int) -> bool:
        """Take a part; False when it is not there."""
        if size > self.left:
            return False
        self.left -= size
        return True


class _Content:
    """Bytes that the agent wrote, on their way to the blob store."""

    def __init__(self, blobs: BlobStore, budget: Budget) -> None:
        self._blobs = blobs
        self._budget = budget
        self._hash = hashlib.sha256()
        self._memory = bytearray()
        self._writer: BlobWriter | None = None
        self._kept = True
        self.size = 0

    async def add(self, data: bytes) -> None:
        self._hash.update(data)
        self.size += len(data)
        if not self._kept:
            return
        if not self._budget.take(len(data)):
            self.drop("the attempt's budget is spent")
        elif len(self._memory) + len(data) <= MEMORY_BYTES:
            self._memory += data
        else:
            await self._store(self._spill, bytes(self._memory) + data)
            self._memory.clear()

    def _spill(self, data: bytes) -> None:
        if self._writer is None:
            self._writer = self._blobs.writer()
        self._writer.write(data)

    def _commit(self) -> None:
        if self._memory or self._writer is None:
            self._spill(bytes(self._memory))
        assert self._writer is not None
        self._writer.commit()

    async def _store(self, work: Callable[..., None], *arguments: bytes) -> None:
        try:
            await asyncio.to_thread(work, *arguments)
        except (OSError, BlobTooLargeError) as error:
            self.drop(str(error))

    async def reference(self) -> dict[str, Any]:
        """Make the content durable; its place in `arguments`."""
        if self._kept:
            await self._store(self._commit)
        return {
            "sha256": DIGEST_PREFIX + self._hash.hexdigest(),
            "size_bytes": self.size,
            "stored": self._kept,
        }

    def drop(self, why: str) -> None:
        """Keep the digest only."""
        if self._kept:
            say("warning", "content_not_kept", size_bytes=self.size, reason=why)
        self._kept = False
        self._memory.clear()
        if self._writer is not None:
            self._writer.abort()


class ToolCall:
    """A call under observation: `output` and `content` while it runs, `end` once, then `Telemetry.record_tool`.

    `clock_ns` is wall clock for the record, `monotonic_ns` measures the duration.
    """

    def __init__(
        self,
        tool_name: str,
        arguments: Mapping[str, Any],
        blobs: BlobStore,
        budget: Budget,
        clock_ns: Callable[[], int],
        monotonic_ns: Callable[[], int],
    ) -> None:
        self._tool_name = tool_name
        self._arguments = dict(arguments)
        self._blobs = blobs
        self._budget = budget
        self._contents: dict[str, _Content] = {}
        self._summary = bytearray()
        self._output_bytes = 0
        self._started_ns = clock_ns()
        self._monotonic_ns = monotonic_ns
        self._began_ns = monotonic_ns()
        self._ended: event.ToolInvocation | None = None
        self._fields: event.ToolInvocation | None = None

    def output(self, data: bytes) -> None:
        """A piece of stdout or stderr (or of a read file), in arrival order."""
        self._output_bytes += len(data)
        room = event.RESULT_SUMMARY_BYTES - len(self._summary)
        if room > 0:
            self._summary += data[:room]

    async def content(self, name: str, data: bytes) -> None:
        """A piece of what the agent wrote (`name` is `stdin` or `content`); its digest goes into `arguments`."""
        if name not in self._contents:
            self._contents[name] = _Content(self._blobs, self._budget)
        await self._contents[name].add(data)

    def end(
        self,
        *,
        exit_code: int | None = None,
        signal: int | None = None,
        timed_out: bool = False,
        truncated: bool = False,
        output_bytes: int | None = None,
        result: str | None = None,
    ) -> None:
        """The call ended; the first end counts.

        `exit_code` is None after a death by signal; a file call's is 0, or 1 when it failed. `output_bytes` is the
        true count where it is known better than by `output`. `result` stands in for an empty summary: an error's
        text, a listing.
        """
        if self._ended is not None:
            return
        if result and not self._summary:
            self._summary += result.encode("utf-8", "replace")[: event.RESULT_SUMMARY_BYTES]
        self._ended = {
            "timestamp_ns": self._started_ns,
            "tool_name": self._tool_name,
            "arguments": {},
            # A character cut at the end shows as U+FFFD, like every byte that is no UTF-8.
            "result_summary": self._summary.decode("utf-8", "replace"),
            "duration_ms": round((self._monotonic_ns() - self._began_ns) / 1e6, 3),
            "exit_code": exit_code,
            "signal": signal,
            "timed_out": timed_out,
            "truncated": truncated,
            "output_bytes": self._output_bytes if output_bytes is None else output_bytes,
        }

    def abort(self) -> None:
        """Drop what was kept of the content, when the call never becomes an event."""
        for content in self._contents.values():
            content.drop("the call was abandoned")

    async def fields(self) -> event.ToolInvocation:
        """The event's fields; makes the content durable first. `end` must have been called."""
        if self._ended is None:
            raise ValueError(f"{self._tool_name}: the call has not ended")
        if self._fields is None:
            references = {name: await content.reference() for name, content in self._contents.items()}
            arguments = {**await self._bounded_arguments(), **references}
            self._fields = {**self._ended, "arguments": arguments}
        return self._fields

    async def _bounded_arguments(self) -> dict[str, Any]:
        encoded = json.dumps(self._arguments, separators=(",", ":")).encode("ascii")
        if len(encoded) <= MAX_ARGUMENTS_BYTES:
            return self._arguments
        whole = _Content(self._blobs, self._budget)
        await whole.add(encoded)
        preview = encoded[:PREVIEW_CHARACTERS].decode("ascii")
        return {"truncated": True, "preview": preview, **await whole.reference()}
