"""The sink runs a program at each attach, beside gRPC's threads: none of them may hang or die on its way there."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from tests.support.trace_sink import SinkProcess, attached, container_id

ATTACHES = 25


@pytest.fixture
def process() -> Iterator[SinkProcess]:
    made = SinkProcess()
    try:
        made.start()
        yield made
    finally:
        made.close()


async def test_every_attach_of_many_succeeds(process: SinkProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.trace.client.BIND_SECONDS", 60.0)
    client = process.client()
    listener = process.listen_for_attach()
    sentries: list[socket.socket] = []
    try:
        for number in range(ATTACHES):
            container = container_id()
            connecting = asyncio.create_task(asyncio.to_thread(attached, listener))
            assert await client.bind(container, f"att_{number}", running=True)
            name, sentry = await connecting
            sentries.append(sentry)
            assert name == container
    finally:
        for sentry in sentries:
            sentry.close()
        listener.close()
        await client.close()
