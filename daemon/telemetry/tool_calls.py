"""One call of the agent, as it becomes a tool_invocation event.

Keeps the first bytes of output in arrival order, counts the rest, and hands the bytes that the agent wrote to the
blob store, so that an attempt can be replayed. Owns no sequence and no file.
"""

from __future__ import annotations


class ToolCall:
    """A call under observation: `output` and `content` while it runs, `end` once."""

    def output(self, data: bytes) -> None:
        """A piece of stdout or stderr (or of a read file), in arrival order."""
        raise NotImplementedError

    async def content(self, name: str, data: bytes) -> None:
        """A piece of what the agent wrote (`name` is `stdin` or `content`); its digest goes into `arguments`."""
        raise NotImplementedError

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
        """The call ended. `output_bytes` is the true count when it is known better; `result` replaces an empty
        summary (an error's text, a listing)."""
        raise NotImplementedError
