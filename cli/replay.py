"""`gauntlet attempt replay`: the recorded calls of an attempt in a new one, and whether the workspace ends the same.

Owns the command: fetch the events and the bytes they name, submit, play (`cli.replaying`), wait, compare.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gauntlet.scheduler.v1 import scheduler_service_pb2 as pb

from cli import following, paging, views
from cli.attempts import AttemptId
from cli.clients import Services, agent, services
from cli.options import Endpoint, Json, endpoint_of
from cli.replaying import Played, Replay
from cli.running import CommandFailed, Exit, answers, messages, print_json, run
from formats.replay import Call, ReplayError, recorded_calls
from wire import client, request_ids

BLOB_TIMEOUT = 300.0
COLUMNS = ["attempt_id", "outcome", "diff_digest"]


def replay(attempt_id: AttemptId, as_json: Json = False, endpoint: Endpoint = None) -> None:
    """Play an ended attempt's calls again in a new one; leaves with 0 when both leave the same diff, else 1."""

    async def work() -> Exit:
        async with services(endpoint_of(endpoint)) as to:
            original = await following.get(to, attempt_id)
            if views.diff_digest(original) is None or original.state not in following.FINAL:
                raise CommandFailed(f"attempt {attempt_id} ({views.state_name(original)}) has no diff to compare with")
            calls = await _calls(to, attempt_id)
            with tempfile.TemporaryDirectory(prefix="gauntlet-replay-") as directory:
                blobs = await _fetch(to, attempt_id, calls, Path(directory))
                new = await _submit(to, original)
                try:
                    played = await _play(to, new, calls, blobs)
                except BaseException:
                    await following.give_up(to, new.attempt_id)
                    raise
            final = await following.wait(to, new.attempt_id, following.FINAL, pb.ATTEMPT_STATE_RUNNING)
        return _show(original, final, played, as_json)

    run(work, endpoint_of(endpoint))


async def _calls(to: Services, attempt_id: str) -> list[Call]:
    events = [event async for event in paging.events(to, attempt_id, "tool_invocation")]
    try:
        return recorded_calls(events)
    except ReplayError as error:
        raise CommandFailed(f"attempt {attempt_id} cannot be replayed: {error}") from error


async def _fetch(to: Services, attempt_id: str, calls: Sequence[Call], directory: Path) -> dict[str, Path]:
    """Every blob that the calls need, checked, as files: an attempt may have written more than memory holds."""
    files: dict[str, Path] = {}
    for digest in {content.digest for call in calls for content in call.contents.values()}:
        path, hashed = directory / digest.removeprefix("sha256:"), hashlib.sha256()
        with path.open("wb") as file:
            request = pb.GetBlobRequest(attempt_id=attempt_id, digest=digest)
            async for piece in to.scheduler.GetBlob(request, timeout=BLOB_TIMEOUT):
                hashed.update(piece.chunk)
                file.write(piece.chunk)
        if f"sha256:{hashed.hexdigest()}" != digest:
            raise CommandFailed(f"the node sent other bytes than {digest}; look at its disk")
        files[digest] = path
    return files


async def _submit(to: Services, original: pb.Attempt) -> pb.Attempt:
    request = pb.SubmitAttemptRequest(
        request_id=request_ids.new(),
        challenge_digest=original.challenge_digest,
        agent_id=original.agent_id,
        priority=pb.PRIORITY_RERUN,
        supersedes=original.attempt_id,
    )
    new: pb.Attempt = (await client.call(to.scheduler.SubmitAttempt, request)).attempt
    messages.print(f"attempt [bold]{new.attempt_id}[/] replays {original.attempt_id}")
    return new


async def _play(to: Services, new: pb.Attempt, calls: Sequence[Call], blobs: dict[str, Path]) -> Played:
    reached = await following.wait(to, new.attempt_id, following.STARTED)
    if reached.state != pb.ATTEMPT_STATE_RUNNING:
        return Played(0, 0, 0)
    request = pb.IssueAttemptTokenRequest(attempt_id=new.attempt_id)
    issued = await client.call(to.scheduler.IssueAttemptToken, request)
    async with agent(issued.node_endpoint, issued.token) as sandbox:
        return await Replay(sandbox, blobs, following.tell).play(calls)


def _show(original: pb.Attempt, final: pb.Attempt, played: Played, as_json: bool) -> Exit:
    before, after = views.diff_digest(original), views.diff_digest(final)
    equal = before == after
    if as_json:
        sides = {"original": _side(original), "replay": _side(final)}
        print_json({**sides, "equal": equal, **vars(played)})
    else:
        answers.print(views.table("Replay", [_side(original), _side(final)], COLUMNS))
        answers.print(
            f"{played.calls} calls played, {played.skipped} left out, {played.different} ended otherwise than recorded"
        )
        answers.print("the diffs are [green]equal[/]" if equal else "the diffs are [red]different[/]")
    if final.state == pb.ATTEMPT_STATE_VOIDED:
        messages.print(f"the replay is void: {final.reason}", markup=False)
        return Exit.VOIDED
    return Exit.DONE if equal else Exit.FAILED


def _side(attempt: pb.Attempt) -> dict[str, Any]:
    return {
        "attempt_id": attempt.attempt_id,
        "outcome": views.outcome_name(attempt),
        "diff_digest": views.diff_digest(attempt),
    }
