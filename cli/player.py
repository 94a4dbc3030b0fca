"""Plays a scripted agent through the public API, from outside the sandbox.

A failing step never stops a script; the attempt's end does.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable, Sequence

import grpc

from cli import sandbox
from cli.clients import Agent
from formats.script import ExecStep, ReadFileStep, Step, SubmitStep, WaitStep, WriteFileStep
from wire import errors

ENDED = frozenset({"ATTEMPT_ENDED", "SANDBOX_ENDED", "TOKEN_INVALID"})
TITLE_CHARACTERS = 400
TAIL_BYTES = 2_000
Report = Callable[[str, bool, float, bytes], None]


class AttemptOver(Exception):
    """The attempt ended under the script."""


async def play(agent: Agent, steps: Sequence[Step], report: Report) -> None:
    """Play every step, then submit. `report(what, succeeded, seconds, last output)` hears of each."""
    try:
        for step in steps:
            if isinstance(step, SubmitStep):
                break
            await _play(agent, step, report)
        began = time.monotonic()
        await sandbox.submit(agent)
        report("submit", True, time.monotonic() - began, b"")
    except AttemptOver as over:
        report(str(over), False, 0.0, b"")
    except errors.WireFailure as failure:
        if failure.reason not in ENDED:
            raise
        report("the attempt ended before the script did", False, 0.0, b"")


async def _play(agent: Agent, step: Step, report: Report) -> None:
    began = time.monotonic()
    tail = bytearray()

    def keep(data: bytes) -> None:
        tail.extend(data)
        del tail[:-TAIL_BYTES]

    what, succeeded = _title(step), True
    try:
        match step:
            case ExecStep():
                stdin = step.stdin.encode() if step.stdin is not None else None
                end = await sandbox.run_command(
                    agent,
                    step.argv,
                    cwd=step.cwd,
                    stdin=stdin,
                    timeout_seconds=step.timeout_seconds,
                    stdout=keep,
                    stderr=keep,
                )
                what, succeeded = f"{what} → {end}", end.exit_code == 0
            case WriteFileStep():
                await sandbox.write_file(agent, step.path, step.data())
            case ReadFileStep():
                await sandbox.read_file(agent, step.path, keep)
            case WaitStep():
                await asyncio.sleep(step.seconds)
    except (grpc.RpcError, errors.WireFailure) as error:
        failure = error if isinstance(error, errors.WireFailure) else errors.decode(error)
        if failure.reason in ENDED:
            raise AttemptOver(f"the attempt ended during: {what}") from error
        if failure.code in ("UNAVAILABLE", "INTERNAL"):
            raise failure from error
        what, succeeded = f"{what} → {failure}", False
    report(what, succeeded, time.monotonic() - began, bytes(tail))


def _title(step: Step) -> str:
    match step:
        case ExecStep():
            words = shlex.join(step.argv)
            return words if len(words) <= TITLE_CHARACTERS else f"{words[:TITLE_CHARACTERS]} …"
        case WriteFileStep():
            return f"write {step.path}"
        case ReadFileStep():
            return f"read {step.path}"
        case WaitStep():
            return f"wait {step.seconds:g} s"
        case SubmitStep():
            return "submit"
