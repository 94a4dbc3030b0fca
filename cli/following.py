"""Following an attempt from the outside: look, wait aloud for a state, cancel, tell of each call.

Shared by the commands that act in attempts. Owns no command and no format.
"""

from __future__ import annotations

from gauntlet.scheduler.v1 import scheduler_service_pb2 as pb
from rich.text import Text

from cli import views
from cli.clients import Services
from cli.plain import one_line
from cli.running import messages
from wire import client, request_ids

FINAL = (pb.ATTEMPT_STATE_SCORED, pb.ATTEMPT_STATE_VOIDED, pb.ATTEMPT_STATE_FAILED)
STARTED = (*FINAL, pb.ATTEMPT_STATE_RUNNING, pb.ATTEMPT_STATE_JUDGING)


async def get(to: Services, attempt_id: str) -> pb.Attempt:
    """One attempt as it now is. Raises WireFailure."""
    answer = await client.call(to.scheduler.GetAttempt, pb.GetAttemptRequest(attempt_id=attempt_id))
    attempt: pb.Attempt = answer.attempt
    return attempt


async def wait(to: Services, attempt_id: str, states: tuple[int, ...], last: int | None = None) -> pb.Attempt:
    """Follow an attempt, aloud, until it is in one of `states`; `last` was told before."""
    async for update in to.scheduler.WatchAttempt(pb.WatchAttemptRequest(attempt_id=attempt_id)):
        if update.attempt.state != last:
            messages.print(f"[cyan]→[/] {views.state_name(update.attempt)}")
            last = update.attempt.state
        if last in states:
            reached: pb.Attempt = update.attempt
            return reached
    return await get(to, attempt_id)


async def cancel(to: Services, attempt_id: str) -> pb.Attempt:
    """End an attempt. Raises WireFailure."""
    request = pb.CancelAttemptRequest(request_id=request_ids.new(), attempt_id=attempt_id)
    attempt: pb.Attempt = (await client.call(to.scheduler.CancelAttempt, request)).attempt
    return attempt


def tell(what: str, succeeded: bool, seconds: float, output: bytes) -> None:
    """Say how one call went; the last lines of its output when it failed."""
    mark = ("✓", "green") if succeeded else ("·", "yellow")
    messages.print(Text.assemble("  ", mark, " ", one_line(what), (f" ({seconds:.2f} s)", "dim")), soft_wrap=True)
    if not succeeded and output:
        for line in output.decode(errors="replace").rstrip().splitlines()[-3:]:
            messages.print(Text(f"      {one_line(line)}", "dim"), soft_wrap=True)
