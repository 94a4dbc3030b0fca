"""Docker's event stream as runtime events, across restarts of the engine.

The stream is read by asyncio straight from the engine's socket: it lives as long as the daemon does, and a thread that
blocks in it could not be ended. Order: subscribe, list, then follow; again after every reconnect, and once a
period even when nothing seems wrong, since the engine's history is short and lost on its restart.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any
from urllib.parse import urlencode

from daemon.runtime.errors import RuntimeFault, RuntimeUnavailable
from daemon.runtime.types import LABEL_INSTANCE, EventKind, Observation, RuntimeEvent

FIRST_BACKOFF_SECONDS = 0.1
LAST_BACKOFF_SECONDS = 5.0
RELIST_SECONDS = 30.0
LINE_LIMIT = 1 << 20

Lister = Callable[[], Awaitable[tuple[Observation, ...]]]


async def follow(
    socket_path: str, instance: str, list_now: Lister, *, relist_seconds: float = RELIST_SECONDS
) -> AsyncGenerator[RuntimeEvent]:
    """RESYNC, then DIE and OOM as they come; for ever."""
    backoff = FIRST_BACKOFF_SECONDS
    while True:
        try:
            async with (
                _subscription(socket_path, instance) as lines,
                aclosing(_one_connection(lines, list_now, relist_seconds)) as events,
            ):
                async for event in events:
                    backoff = FIRST_BACKOFF_SECONDS
                    yield event
        except (OSError, EOFError, RuntimeFault, asyncio.LimitOverrunError):
            # The engine is away: waiting is the whole remedy, the RESYNC after it repairs what was missed.
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, LAST_BACKOFF_SECONDS)


async def _one_connection(
    lines: asyncio.StreamReader, list_now: Lister, relist_seconds: float
) -> AsyncGenerator[RuntimeEvent]:
    loop = asyncio.get_running_loop()
    pending: asyncio.Task[bytes] = asyncio.ensure_future(_chunk(lines))
    buffer = b""
    try:
        while True:
            yield RuntimeEvent(EventKind.RESYNC, observations=await list_now())
            relist_at = loop.time() + relist_seconds
            while (left := relist_at - loop.time()) > 0:
                done, _ = await asyncio.wait({pending}, timeout=left)
                if not done:
                    continue
                buffer += pending.result()
                pending = asyncio.ensure_future(_chunk(lines))
                *whole, buffer = buffer.split(b"\n")
                for line in whole:
                    event = parse(line)
                    if event is not None:
                        yield event
    finally:
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)


@asynccontextmanager
async def _subscription(socket_path: str, instance: str) -> AsyncIterator[asyncio.StreamReader]:
    filters = {"type": ["container"], "event": ["die", "oom"], "label": [f"{LABEL_INSTANCE}={instance}"]}
    query = urlencode({"filters": json.dumps(filters)})
    reader, writer = await asyncio.open_unix_connection(socket_path, limit=LINE_LIMIT)
    try:
        writer.write(f"GET /events?{query} HTTP/1.1\r\nHost: docker\r\nAccept: application/json\r\n\r\n".encode())
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        status, _, headers = head.partition("\r\n")
        if " 200 " not in status + " ":
            raise RuntimeUnavailable(f"the Docker engine refused the event stream: {status}")
        if "transfer-encoding: chunked" not in headers:
            raise RuntimeUnavailable("the Docker engine sent an event stream that is not chunked")
        yield reader
    finally:
        writer.close()


async def _chunk(reader: asyncio.StreamReader) -> bytes:
    """One chunk of HTTP's chunked encoding; EOFError at its end."""
    head = await reader.readuntil(b"\r\n")
    try:
        size = int(head.split(b";")[0], 16)
    except ValueError as error:
        raise RuntimeUnavailable(f"the event stream is broken: {head[:40]!r} is not a chunk size") from error
    data = await reader.readexactly(size + 2)
    if size == 0:
        raise EOFError("the event stream ended")
    return data[:-2]


def parse(line: bytes) -> RuntimeEvent | None:
    """One event from its JSON line; None for an empty line or an action that is not ours."""
    if not line.strip():
        return None
    told: dict[str, Any] = json.loads(line)
    actor = told.get("Actor") or {}
    attributes: dict[str, str] = actor.get("Attributes") or {}
    kind: EventKind
    code: int | None = None
    match told.get("Action"):
        case "die":
            kind, code = EventKind.DIE, int(attributes.get("exitCode", "-1"))
        case "oom":
            kind = EventKind.OOM
        case _:
            return None
    labels = {key: value for key, value in attributes.items() if key.startswith("gauntlet.")}
    return RuntimeEvent(kind, actor.get("ID", ""), code, int(told.get("timeNano", 0)), labels)
