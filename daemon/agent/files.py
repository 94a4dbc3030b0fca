"""The agent's file calls, each one recorded, failed ones too.

Every path is opened inside the sandbox as the agent's own user; nothing here touches the host's files.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from daemon.attempts.context import NodeContext
from daemon.attempts.live import LiveAttempt
from daemon.supervisor.errors import FileFailed, SupervisorError
from daemon.supervisor.types import DirEntry, FileDigest, FileStat
from daemon.telemetry.tool_calls import ToolCall

DISK_FULL = frozenset({"ENOSPC", "EDQUOT"})


class AgentFiles:
    """File calls of every attempt on this node. All raise AttemptEnded, FileFailed, SupervisorGone."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node

    async def read(
        self, attempt: LiveAttempt, path: str, offset: int, length: int | None
    ) -> AsyncIterator[bytes | FileDigest]:
        """The file's chunks, then its digest."""
        async with self._recorded(attempt, "read_file", {"path": path, "offset": offset, "length": length}) as call:
            reader = attempt.sandbox().link.read_file(path, offset, length)
            sent = 0
            try:
                async for chunk in reader:
                    call.output(chunk)
                    sent += len(chunk)
                    yield chunk
            finally:
                await reader.aclose()
            call.end(exit_code=0, output_bytes=sent)
            assert reader.digest is not None
            yield reader.digest

    async def write(
        self,
        attempt: LiveAttempt,
        path: str,
        chunks: AsyncIterator[bytes],
        *,
        size: int,
        sha256: str | None,
        mode: int | None,
    ) -> FileDigest:
        """Write a file whole, or not at all."""
        async with self._recorded(attempt, "write_file", {"path": path, "mode": mode}) as call:

            async def observed() -> AsyncIterator[bytes]:
                async for chunk in chunks:
                    await call.content("content", chunk)
                    yield chunk

            link = attempt.sandbox().link
            written = await link.write_file(path, observed(), size=size, sha256=sha256, mode=mode)
            call.end(exit_code=0, output_bytes=0)
            return written

    async def list(self, attempt: LiveAttempt, path: str, limit: int) -> tuple[list[DirEntry], bool]:
        """A directory's entries, and whether `limit` cut them."""
        async with self._recorded(attempt, "list", {"path": path}) as call:
            entries, truncated = await attempt.sandbox().link.list_dir(path, limit=limit)
            call.end(exit_code=0, truncated=truncated, output_bytes=0, result=f"{len(entries)} entries")
            return entries, truncated

    async def stat(self, attempt: LiveAttempt, path: str) -> FileStat:
        """What a path is."""
        async with self._recorded(attempt, "stat", {"path": path}) as call:
            found = await attempt.sandbox().link.stat(path)
            call.end(exit_code=0, output_bytes=0, result=f"{found.type} {found.mode:o} {found.size}")
            return found

    async def make_directory(self, attempt: LiveAttempt, path: str, parents: bool) -> None:
        """Make a directory."""
        async with self._recorded(attempt, "mkdir", {"path": path, "parents": parents}) as call:
            await attempt.sandbox().link.mkdir(path, parents=parents)
            call.end(exit_code=0, output_bytes=0)

    async def remove(self, attempt: LiveAttempt, path: str, recursive: bool) -> None:
        """Remove a file or a tree."""
        async with self._recorded(attempt, "remove", {"path": path, "recursive": recursive}) as call:
            await attempt.sandbox().link.remove(path, recursive=recursive)
            call.end(exit_code=0, output_bytes=0)

    @asynccontextmanager
    async def _recorded(self, attempt: LiveAttempt, tool: str, arguments: Mapping[str, Any]) -> AsyncIterator[ToolCall]:
        """Observe one call; its event is in the spool before the answer leaves."""
        attempt.sandbox()
        given = {name: value for name, value in arguments.items() if value not in (None, 0, False)}
        call = self._node.telemetry.begin_tool(attempt.facts.attempt_id, tool, given)
        try:
            yield call
        except FileFailed as error:
            if error.errno_name in DISK_FULL:
                attempt.facts.evidence.disk_full = True
            call.end(exit_code=1, output_bytes=0, result=str(error))
            raise
        except SupervisorError as error:
            call.end(output_bytes=0, result=str(error))
            raise
        except BaseException:
            call.end(output_bytes=0, result="the client left")
            raise
        finally:
            await self._node.telemetry.record_tool(attempt.facts.attempt_id, call)
