"""A supervisor on this machine, for tests: PID 1 of a PID namespace of its own, with a sandbox's capabilities.

Plays the container engine's part: stdin is a FIFO whose end each client opens and closes (so PID 1 sees EOF between
clients), stdout a pipe that stays open. Needs root. Never start the binary outside a PID namespace; it refuses to.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from pathlib import Path

from daemon.supervisor.streams import STREAM_LIMIT, LogTail, StreamTransport

CAPABILITIES = ("chown", "dac_override", "fowner", "setgid", "setuid")


class LocalSupervisor:
    """One running supervisor; `attach` as often as needed, one client at a time."""

    def __init__(self, binary: Path, workspace: Path) -> None:
        """`workspace` is what relative paths start from; both must be reachable by uid 1000."""
        self._binary = binary
        self._workspace = workspace
        self._directory = tempfile.TemporaryDirectory(prefix="gauntlet-supervisor-")
        self._fifo = Path(self._directory.name) / "stdin"
        self._stdout = -1
        self._process: asyncio.subprocess.Process | None = None
        self._log_task: asyncio.Task[None] | None = None
        self.log = LogTail()

    async def start(self) -> None:
        """Start it."""
        os.mkfifo(self._fifo, 0o600)
        # Read-write for a moment, so that neither end's open waits for the other.
        bridge = os.open(self._fifo, os.O_RDWR)
        theirs_in = os.open(self._fifo, os.O_RDONLY)
        self._stdout, theirs_out = os.pipe()
        bounding = "-all," + ",".join(f"+{c}" for c in CAPABILITIES)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *("unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child"),
                *("setpriv", "--no-new-privs", "--bounding-set", bounding, "--inh-caps", "-all"),
                *(str(self._binary), "-workspace", str(self._workspace)),
                stdin=theirs_in,
                stdout=theirs_out,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        finally:
            for fd in (bridge, theirs_in, theirs_out):
                os.close(fd)
        self._log_task = asyncio.create_task(self._keep_log())

    async def attach(self) -> StreamTransport:
        """A client's connection; closing it leaves the supervisor alone."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=STREAM_LIMIT)
        protocol = asyncio.StreamReaderProtocol(reader)
        read_pipe, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(os.dup(self._stdout), "rb", 0))
        stdin = os.open(self._fifo, os.O_WRONLY | os.O_NONBLOCK)
        write_pipe, flow = await loop.connect_write_pipe(
            lambda: asyncio.streams.FlowControlMixin(loop), os.fdopen(stdin, "wb", 0)
        )
        writer = asyncio.StreamWriter(write_pipe, flow, reader, loop)
        return _PipeTransport(reader, writer, read_pipe, self.log)

    async def wait(self) -> int:
        """Its exit status."""
        if self._process is None:
            raise RuntimeError("start it first")
        return await self._process.wait()

    async def kill(self) -> None:
        """End it and everything in its namespace."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
            await self._process.wait()
        if self._log_task is not None:
            await self._log_task
        if self._stdout >= 0:
            os.close(self._stdout)
            self._stdout = -1
        self._directory.cleanup()

    async def _keep_log(self) -> None:
        if self._process is None or self._process.stderr is None:
            raise RuntimeError("start it first")
        while data := await self._process.stderr.read(4096):
            self.log.add(data)


class _PipeTransport(StreamTransport):
    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        read_pipe: asyncio.ReadTransport,
        log: LogTail,
    ) -> None:
        super().__init__(reader, writer)
        self._read_pipe = read_pipe
        self._closed = False
        self.log = log

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._read_pipe.close()
        if not self._writer.transport.is_closing():  # asyncio's pipes do not take a second close
            self._writer.transport.abort()
        self._reader.feed_eof()
