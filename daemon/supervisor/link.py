"""One daemon's connection to one sandbox's PID 1: the public calls.

Owns which execs are live and the order of the handshake; frames are `wire`'s, output is `execs`', content is `files`'.
Leaves out deadlines, policy and records: those belong to the daemon.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType
from typing import Any

from daemon.supervisor.codec import exec_info_from_wire, info_from_wire, spec_to_wire
from daemon.supervisor.errors import (
    CallFailed,
    ExecRefused,
    ProtocolError,
    StdinClosed,
    SupervisorError,
    TooManyExecs,
)
from daemon.supervisor.execs import ExecHandle
from daemon.supervisor.files import FileCalls, FileReader
from daemon.supervisor.frames import Frame, FrameType
from daemon.supervisor.transport import ByteTransport
from daemon.supervisor.types import DirEntry, ExecInfo, ExecSpec, FileDigest, FileStat, SupervisorInfo, Text
from daemon.supervisor.wire import Wire

PROTOCOL_VERSION = 1
MAX_EXECS = 32
# Ids of ended execs that still get StdinClosed instead of KeyError.
REMEMBERED_ENDS = 256


class SupervisorLink:
    """Typed calls over a `ByteTransport`; see images/supervisor/PROTOCOL.md for the frames.

    Every call raises SupervisorGone at once when the transport has ended. Deadlines are the caller's
    (`asyncio.timeout`); cancelling a call is always safe.
    """

    def __init__(self, transport: ByteTransport, *, fresh: bool = True) -> None:
        """`fresh=False` when an earlier daemon may have used this sandbox: connect then resynchronises first."""
        self._transport = transport
        self._fresh = fresh
        self._wire = Wire(transport)
        self._files = FileCalls(self._wire)
        self._live: dict[str, ExecHandle] = {}
        self._ended: deque[str] = deque(maxlen=REMEMBERED_ENDS)
        self._gone = asyncio.Event()
        self._wire.on_gone.append(self._lost)
        self.info: SupervisorInfo | None = None

    @property
    def execs(self) -> Mapping[str, ExecHandle]:
        """Live execs by id, those adopted from an earlier daemon included."""
        return MappingProxyType(self._live)

    async def connect(self) -> SupervisorInfo:
        """SYNC, HELLO, READY. Raises ProtocolError on a version mismatch, SupervisorGone when the stream ends."""
        await self._wire.open(self._fresh)
        try:
            hello = {"protocol": PROTOCOL_VERSION}
            ready = await self._wire.request(FrameType.HELLO, hello, at_once=self._take_over)
        except CallFailed as error:
            raise ProtocolError(str(error)) from error
        return info_from_wire(ready)

    async def ping(self) -> float:
        """Seconds for one round trip."""
        stream, answer = self._wire.new_stream(), self._wire.future()
        self._wire.route(stream, lambda frame: None if answer.done() else answer.set_result(frame))
        try:
            began = time.perf_counter()
            self._wire.post(Frame(FrameType.PING, stream=stream))
            await self._wire.settle(answer)
            return time.perf_counter() - began
        finally:
            self._wire.unroute(stream)

    async def assign(self, env: Mapping[str, str]) -> None:
        """Set the attempt's environment, once. The same again is fine, another raises CallFailed ALREADY_ASSIGNED."""
        await self._wire.request(FrameType.ASSIGN, {"env": dict(env)})

    async def exec(self, spec: ExecSpec, *, exec_id: str) -> ExecHandle:
        """Start a command; returns when it is started or ended. Raises ExecRefused, TooManyExecs, ValueError."""
        body = spec_to_wire(spec, exec_id)
        self._wire.check()
        if exec_id in self._live:
            raise ExecRefused("DUPLICATE", f"exec {exec_id!r} is live")
        if len(self._live) >= MAX_EXECS:
            raise TooManyExecs(f"{MAX_EXECS} commands are live")
        frame = Frame(FrameType.EXEC, stream=self._wire.new_stream(), payload=json.dumps(body).encode())
        handle = self._register(exec_id, frame.stream, spec.max_output_bytes, spec.stdin)
        try:
            self._wire.post(frame)
        except (ValueError, SupervisorError):
            self._forget(handle)
            raise
        await handle.started()
        return handle

    async def list_execs(self) -> tuple[ExecInfo, ...]:
        """Live execs and the last ended ones, as the supervisor knows them."""
        reply = await self._wire.request(FrameType.LIST_EXECS, {})
        return tuple(exec_info_from_wire(e) for e in reply["execs"])

    async def write_stdin(self, exec_id: str, offset: int, data: bytes, eof: bool = False) -> int:
        """Send stdin from `offset` (bytes already sent are skipped); returns the next offset.

        Raises StdinGap, StdinClosed, KeyError (no such live exec).
        """
        handle = self._live.get(exec_id)
        if handle is None and exec_id in self._ended:
            raise StdinClosed(exec_id, 0)
        return await self._live[exec_id].write_stdin(offset, data, eof)

    async def signal(self, exec_id: str, signo: int, *, pids: tuple[int, ...] = ()) -> int:
        """Signal the exec's group, session and lineage (`pids`: more roots known from outside).

        SIGKILL is repeated until two scans in a row find nothing. Returns how many processes were signalled
        (with SIGKILL: how many the first blow did not end at once);
        raises CallFailed NOT_FOUND or UNCONFIRMED.
        """
        body = {"exec_id": exec_id, "signo": signo, "pids": list(pids)}
        return int((await self._wire.request(FrameType.SIGNAL, body))["signalled"])

    async def kill_all(self, signo: int) -> int:
        """Signal every agent process; with SIGKILL repeat until none lives. Returns how many are left."""
        return int((await self._wire.request(FrameType.KILL_ALL, {"signo": signo}))["left"])

    async def stop(self, grace_seconds: float) -> None:
        """TERM to all, grace, KILL, then PID 1 exits 0; returns when the stream has ended."""
        if not (grace_seconds >= 0 and math.isfinite(grace_seconds)):
            raise ValueError(f"grace_seconds must be 0 or more and finite, got {grace_seconds}")
        frame = Frame(FrameType.STOP, payload=json.dumps({"grace_seconds": grace_seconds}).encode())
        self._wire.post(frame)
        await self._gone.wait()

    def read_file(self, path: Text, offset: int = 0, length: int | None = None) -> FileReader:
        """Async iterator over chunks; its `digest` is set at the end. Errors are raised while iterating."""
        return FileReader(self._files, path, offset, length)

    async def write_file(
        self,
        path: Text,
        chunks: AsyncIterator[bytes] | bytes,
        *,
        size: int | None = None,
        sha256: str | None = None,
        mode: int | None = None,
        parents: bool = False,
    ) -> FileDigest:
        """Write by temporary file and rename, verified; `mode` None keeps an existing file's, else 0644."""
        return await self._files.write(path, chunks, size, sha256, mode, parents)

    async def list_dir(self, path: Text, *, limit: int = 10_000) -> tuple[list[DirEntry], bool]:
        """Entries sorted by name, and whether `limit` cut them."""
        return await self._files.list(path, limit)

    async def stat(self, path: Text) -> FileStat:
        """Lstat."""
        return await self._files.stat(path)

    async def mkdir(self, path: Text, *, parents: bool = False, mode: int = 0o755) -> None:
        """Make a directory; with `parents` an existing one is fine."""
        await self._files.simple(path, {"op": "mkdir", "parents": parents, "mode": mode}, dict)

    async def remove(self, path: Text, *, recursive: bool = False) -> None:
        """Remove a file, link or empty directory; a whole tree with `recursive`, following nothing."""
        await self._files.simple(path, {"op": "remove", "recursive": recursive}, dict)

    async def close(self) -> None:
        """Leave: pending calls fail with SupervisorGone, PID 1 and its execs go on."""
        await self._wire.close()

    async def gone(self) -> None:
        """Wait until the connection has ended, for whatever reason."""
        await self._gone.wait()

    def _take_over(self, ready: dict[str, Any]) -> None:
        """Adopt what runs, before the next frame is looked at: it may be the end of one of them."""
        self.info = info_from_wire(ready)
        self._wire.streams_from(self.info.next_stream)
        for known in self.info.execs:
            if known.result is None:
                handle = self._register(known.exec_id, known.stream, known.max_output_bytes, known.stdin)
                handle.adopt(known.pid, known.stdin_received)
            else:
                self._ended.append(known.exec_id)

    def _register(self, exec_id: str, stream: int, cap: int, stdin: bool) -> ExecHandle:
        handle = ExecHandle(self._wire, exec_id, stream, cap, stdin)
        self._live[exec_id] = handle

        def take(frame: Frame) -> None:
            handle.take(frame)
            if handle.done:
                self._forget(handle)

        self._wire.route(stream, take)
        return handle

    def _forget(self, handle: ExecHandle) -> None:
        self._wire.unroute(handle.stream)
        self._live.pop(handle.exec_id, None)
        self._ended.append(handle.exec_id)

    def _lost(self, reason: SupervisorError) -> None:
        for handle in self._live.values():
            handle.fail(reason)
        self._live.clear()
        self._gone.set()
