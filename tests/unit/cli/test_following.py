"""Following an attempt across a scheduler that goes away and comes back."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from gauntlet.scheduler.v1 import scheduler_service_pb2 as pb
from gauntlet.scheduler.v1 import scheduler_service_pb2_grpc as pb_grpc

from cli import following
from cli.clients import services
from wire.server import Server

NAME = "gauntlet.scheduler.v1.SchedulerService"


class Scheduler(pb_grpc.SchedulerServiceServicer):
    """Tells one state, then waits."""

    def __init__(self, state: int) -> None:
        self.state = state
        self.watched = asyncio.Event()

    async def WatchAttempt(self, request, context):
        yield pb.WatchAttemptResponse(attempt=pb.Attempt(attempt_id=request.attempt_id, state=self.state))
        self.watched.set()
        await asyncio.Event().wait()


async def serve(endpoint: str, scheduler: Scheduler) -> Server:
    server = Server(endpoint, {NAME: (pb_grpc.add_SchedulerServiceServicer_to_server, scheduler)})
    await server.start()
    return server


async def test_a_scheduler_that_restarts_is_waited_for(tmp_path):
    endpoint = f"unix://{tmp_path}/s.sock"
    first = Scheduler(pb.ATTEMPT_STATE_QUEUED)
    server = await serve(endpoint, first)
    async with services(endpoint) as to:
        waiting = asyncio.create_task(following.wait(to, "att_1", following.FINAL))
        async with asyncio.timeout(10):
            await first.watched.wait()
        await server.stop(0)
        server = await serve(endpoint, Scheduler(pb.ATTEMPT_STATE_SCORED))
        async with asyncio.timeout(20):
            found = await waiting
    assert found.state == pb.ATTEMPT_STATE_SCORED
    await server.stop(0)


async def test_a_scheduler_that_stays_away_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(following, "AWAY_SECONDS", 0.2)
    monkeypatch.setattr(following, "AGAIN_SECONDS", 0.05)
    async with services(f"unix://{tmp_path}/none.sock") as to:
        with pytest.raises(grpc.RpcError):
            async with asyncio.timeout(10):
                await following.wait(to, "att_1", following.FINAL)
