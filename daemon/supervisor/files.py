"""File calls of a link."""

from __future__ import annotations

from collections.abc import AsyncIterator

from daemon.supervisor.types import FileDigest


class FileReader:
    """Async iterator of one file's chunks; `digest` is set when the iteration ends. Use `aclose()` to stop early."""

    digest: FileDigest | None

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Chunks of at most 64 KiB."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Stop early."""
        raise NotImplementedError

    async def read_all(self, limit: int) -> bytes:
        """The whole content; raises FileFailed EFBIG past `limit` bytes."""
        raise NotImplementedError
