"""How many tasks a sandbox's guest has now: processes and their threads, as the pids limit counts them.

Under gVisor the control group counts the sentry's own host threads, so the sentry itself is asked (`runsc events
--stats`, about 15 ms, every five seconds); under runc the control group is right.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from daemon.telemetry.types import SourceGoneError

MAX_ANSWER_BYTES = 64 * 1_024


class RunscPids:
    """Asks the sentry of one container. `root` is runsc's state directory, `<exec-root>/runtime-runc/moby`."""

    def __init__(self, program: Path, root: Path, container_id: str) -> None:
        self._command = (str(program), f"--root={root}", "events", "--stats", container_id)

    async def __call__(self) -> int | None:
        """The count. Raises SourceGoneError when the sentry does not answer, or not with a count."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None
        try:
            answer = await process.stdout.read(MAX_ANSWER_BYTES)
            await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return parse_stats(answer)


def parse_stats(answer: bytes) -> int:
    """The count in the sentry's answer, which is the sentry's word and not to be trusted. Raises SourceGoneError."""
    try:
        count = json.loads(answer)["data"]["pids"]["current"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SourceGoneError(f"no count of processes: {answer[:100]!r}") from error
    if type(count) is not int or not 0 <= count < 2**31:
        raise SourceGoneError(f"no count of processes: {count!r}")
    return count


class CgroupPids:
    """Reads pids.current of a container's group: right under runc, where guest tasks are host tasks."""

    def __init__(self, group: Path) -> None:
        """`group` is the container's directory of the pids controller."""
        self._path = group / "pids.current"

    async def __call__(self) -> int | None:
        """The count. Raises SourceGoneError."""
        try:
            return int(await asyncio.to_thread(self._path.read_text))
        except (OSError, ValueError) as error:
            raise SourceGoneError(str(error)) from error
