"""One container with its supervisor READY, or nothing: what warm entries, cold claims and judges have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from daemon.pool.undertaker import Undertaker
from daemon.pool.watched import WatchedTransport
from daemon.runtime.port import Runtime
from daemon.runtime.types import Created, SandboxSpec
from daemon.supervisor.errors import SupervisorError
from daemon.supervisor.link import SupervisorLink

READY_SECONDS = 20.0

Confirm = Callable[[str], Awaitable[None]]
"""Awaited with the container's id before it counts as READY: the sentry must be seen tracing, a broken trace session
only logs a warning and runs on untraced. Raises to refuse."""


class NotReady(Exception):
    """The container started but its supervisor did not say READY; the container is being destroyed."""


@dataclass(frozen=True, slots=True)
class Launched:
    """A running sandbox nobody has used."""

    container_id: str
    link: SupervisorLink
    transport: WatchedTransport


async def launch(
    runtime: Runtime,
    spec: SandboxSpec,
    undertaker: Undertaker,
    *,
    confirm: Confirm | None = None,
    ready_seconds: float = READY_SECONDS,
) -> Launched:
    """Create, start, wait for READY. Raises the runtime's errors and NotReady; safe to cancel.

    After an error the container is destroyed before this returns; when that needs repeating, or the caller was
    cancelled, the undertaker goes on in the background.
    """
    # Not cancelled with us: whoever follows must be able to wait until what the engine made is gone again.
    creating = asyncio.ensure_future(runtime.create(spec))
    try:
        created = await asyncio.shield(creating)
    except asyncio.CancelledError:
        undertaker.bury(burial_of(spec), lambda: _drop(runtime, creating))
        raise
    transport = WatchedTransport(created.transport)
    link = SupervisorLink(transport)
    try:
        try:
            async with asyncio.timeout(ready_seconds):
                await link.connect()
                if confirm is not None:
                    await confirm(created.container_id)
        except TimeoutError:
            raise NotReady(f"no READY within {ready_seconds:g} s{_last_words(transport)}") from None
        except SupervisorError as error:
            raise NotReady(f"{error}{_last_words(transport)}") from error
    except BaseException:
        burial = undertaker.bury(burial_of(spec), lambda: _undo(runtime, created, link))
        await asyncio.wait({burial}, timeout=ready_seconds)
        raise
    return Launched(created.container_id, link, transport)


def burial_of(spec: SandboxSpec) -> str:
    """The name under which the undertaker ends the container of a launch that failed."""
    return f"container {spec.name}"


async def _drop(runtime: Runtime, creating: asyncio.Future[Created]) -> None:
    await asyncio.wait({creating})
    if not creating.cancelled() and creating.exception() is None:
        created = creating.result()
        await created.transport.close()
        await runtime.destroy(created.container_id)


async def _undo(runtime: Runtime, created: Created, link: SupervisorLink) -> None:
    await link.close()
    await created.transport.close()
    await runtime.destroy(created.container_id)


def _last_words(transport: WatchedTransport) -> str:
    words = transport.diagnosis().strip()
    return f"; PID 1 said: {words}" if words else ""
