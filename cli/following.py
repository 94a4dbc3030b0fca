"""Following an attempt from the outside: look, wait aloud for a state, cancel, tell of each call.

Shared by the commands that act in attempts. Owns no command and no format.
"""

from __future__ import annotations

import asyncio
import time

import grpc
from gauntlet.scheduler.v1 import scheduler_service_pb2 as pb
from rich.text import Text

from cli import views
from cli.clients import Services
from cli.plain import one_line
from cli.running import messages
from wire import client, errors, request_ids

FINAL = (pb.ATTEMPT_STATE_SCORED, pb.ATTEMPT_STATE_VOIDED, pb.ATTEMPT_STATE_FAILED)
# A restart takes seconds; after this the scheduler counts as gone.
AWAY_SECONDS = 30.0
AGAIN_SECONDS = 0.5
STARTED = (*FINAL, pb.ATTEMPT_STATE_RUNNING, pb.ATTEMPT_STATE_JUDGING)


async def get(to: Services, attempt_id: str) -> pb.Attempt:
    """One attempt as it now is. Raises WireFailure."""
    answer = await client.call(to.scheduler.GetAttempt, pb.GetAttemptRequest(attempt_id=attempt_id))
    attempt: pb.Attempt = answer.attempt
    return attempt


async def wait(to: Services, attempt_id: str, states: tuple[int, ...], last: int | None = None) -> pb.Attempt:
    """Follow an attempt, aloud, until it is in one of `states`; `last` was told before.

    A scheduler that restarts is waited for: the attempt goes on without us. Raises grpc.RpcError, WireFailure once it
    cannot be reached for AWAY_SECONDS.
    """
    away_since: float | None = None
    while True:
        try:
            async for update in to.scheduler.WatchAttempt(pb.WatchAttemptRequest(attempt_id=attempt_id)):
                away_since = None
                if update.attempt.state != last:
                    messages.print(f"[cyan]→[/] {views.state_name(update.attempt)}")
                    last = update.attempt.state
                if last in states:
                    reached: pb.Attempt = update.attempt
                    return reached
            return await get(to, attempt_id)
        except grpc.RpcError as error:
            now = time.monotonic()
            away_since = now if away_since is None else away_since
            if errors.decode(error).code != "UNAVAILABLE" or now - away_since > AWAY_SECONDS:
                raise
            await asyncio.sleep(AGAIN_SECONDS)


async def cancel(to: Services, attempt_id: str) -> pb.Attempt:
    """End an attempt. Raises WireFailure."""
    request = pb.CancelAttemptRequest(request_id=request_ids.new(), attempt_id=attempt_id)
    attempt: pb.Attempt = (await client.call(to.scheduler.CancelAttempt, request)).attempt
    return attempt


async def give_up(to: Services, attempt_id: str) -> None:
    """End an attempt that nobody acts in any more; the failure that brought us here is the one to be told."""
    try:
        await cancel(to, attempt_id)
    except errors.WireFailure as failure:
        messages.print(Text(f"attempt {attempt_id} could not be cancelled: {failure}", "yellow"), soft_wrap=True)


def tell(what: str, succeeded: bool, seconds: float, output: bytes) -> None:
    """Say how one call went; the last lines of its output when it failed."""
    mark = ("✓", "green") if succeeded else ("·", "yellow")
    messages.print(Text.assemble("  ", mark, " ", one_line(what), (f" ({seconds:.2f} s)", "dim")), soft_wrap=True)
    if not succeeded and output:
        for line in output.decode(errors="replace").rstrip().splitlines()[-3:]:
            messages.print(Text(f"      {one_line(line)}", "dim"), soft_wrap=True)
