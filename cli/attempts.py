"""`gauntlet attempt …`: submit, run, look at, end attempts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from gauntlet.scheduler.v1 import scheduler_service_pb2 as pb
from rich.text import Text

from cli import agent_command, challenges, following, paging, player, views
from cli.clients import Services, agent, services
from cli.options import Endpoint, Json, agent_endpoint_of, endpoint_of
from cli.plain import one_line
from cli.running import Exit, answers, fail, messages, print_json, run
from formats.script import Step, parse_script
from wire import client, request_ids

app = typer.Typer(no_args_is_help=True, help="Submit, run and inspect attempts.")

PRIORITIES = {"bout": pb.PRIORITY_BOUT, "practice": pb.PRIORITY_PRACTICE, "rerun": pb.PRIORITY_RERUN}
LIST_COLUMNS = ["attempt_id", "challenge_id", "agent_id", "priority", "state", "outcome", "fault"]

Directory = Annotated[Path, typer.Argument(help="A challenge's directory.", exists=True, file_okay=False)]
AttemptId = Annotated[str, typer.Argument(help="att_…")]
AgentId = Annotated[str, typer.Option("--agent-id", help="Who attempts.")]
Priority = Annotated[str, typer.Option("--priority", help="bout, practice or rerun.")]


@app.command("run")
def run_attempt(
    directory: Directory,
    script: Annotated[Path | None, typer.Option("--script", exists=True, dir_okay=False)] = None,
    agent_text: Annotated[str | None, typer.Option("--agent", help="A command that acts as the agent.")] = None,
    agent_id: AgentId = "local",
    priority: Priority = "practice",
    as_json: Json = False,
    endpoint: Endpoint = None,
) -> None:
    """Submit an attempt, act in it, wait for its scores, print its record."""
    if (script is None) == (agent_text is None):
        fail("give exactly one of --script FILE and --agent 'COMMAND'", Exit.USAGE)
    _priority(priority)

    async def work() -> Exit:
        challenges.checked(directory)
        steps = parse_script(script.read_bytes(), str(script)) if script is not None else None
        async with services(target) as to:
            attempt = await _submit(to, directory, agent_id, priority)
            try:
                await _act(to, target, attempt, steps, agent_text)
            except BaseException:
                await following.give_up(to, attempt.attempt_id)
                raise
            final = await following.wait(to, attempt.attempt_id, following.FINAL, pb.ATTEMPT_STATE_RUNNING)
        return _show_record(final, as_json)

    target = endpoint_of(endpoint)
    run(work, target)


@app.command()
def submit(
    directory: Directory,
    agent_id: AgentId = "local",
    priority: Priority = "practice",
    as_json: Json = False,
    endpoint: Endpoint = None,
) -> None:
    """Queue an attempt and print its id."""
    _priority(priority)

    async def work() -> None:
        challenges.checked(directory)
        async with services(endpoint_of(endpoint)) as to:
            attempt = await _submit(to, directory, agent_id, priority)
        if as_json:
            print_json(views.entry(attempt))
        else:
            answers.print(attempt.attempt_id)

    run(work, endpoint_of(endpoint))


@app.command()
def get(attempt_id: AttemptId, as_json: Json = False, endpoint: Endpoint = None) -> None:
    """Print an attempt's record, as far as there is one."""

    async def work() -> None:
        async with services(endpoint_of(endpoint)) as to:
            attempt = await following.get(to, attempt_id)
        if as_json:
            print_json(views.record(attempt))
        else:
            answers.print(f"[bold]{views.state_name(attempt)}[/]")
            answers.print(views.record_table(views.record(attempt)))

    run(work, endpoint_of(endpoint))


@app.command("list")
def list_attempts(as_json: Json = False, endpoint: Endpoint = None) -> None:
    """List attempts, newest first."""

    async def work() -> None:
        async with services(endpoint_of(endpoint)) as to:
            rows = [views.entry(attempt) async for attempt in paging.attempts(to)]
        print_json(rows) if as_json else answers.print(views.table("Attempts", rows, LIST_COLUMNS))

    run(work, endpoint_of(endpoint))


@app.command()
def watch(attempt_id: AttemptId, as_json: Json = False, endpoint: Endpoint = None) -> None:
    """Print each state of an attempt until its end."""

    async def work() -> None:
        async with services(endpoint_of(endpoint)) as to:
            async for update in to.scheduler.WatchAttempt(pb.WatchAttemptRequest(attempt_id=attempt_id)):
                if as_json:
                    print_json(views.entry(update.attempt))
                else:
                    answers.print(views.state_name(update.attempt))

    run(work, endpoint_of(endpoint))


@app.command()
def cancel(attempt_id: AttemptId, as_json: Json = False, endpoint: Endpoint = None) -> None:
    """End an attempt."""

    async def work() -> None:
        async with services(endpoint_of(endpoint)) as to:
            attempt = await following.cancel(to, attempt_id)
        print_json(views.entry(attempt)) if as_json else answers.print(views.state_name(attempt))

    run(work, endpoint_of(endpoint))


@app.command()
def diff(attempt_id: AttemptId, as_json: Json = False, endpoint: Endpoint = None) -> None:
    """List what an attempt changed in its workspace."""

    async def work() -> None:
        entries: list[dict[str, Any]] = []
        async with services(endpoint_of(endpoint)) as to:
            async for batch in to.scheduler.GetDiff(pb.GetDiffRequest(attempt_id=attempt_id)):
                entries.extend(json.loads(line) for line in batch.entries)
        if as_json:
            print_json(entries)
        else:
            columns = ["change", "type", "mode", "size", "path"]
            rows = [
                {**entry, "mode": f"{entry['mode']:04o}" if entry.get("mode") is not None else None}
                for entry in entries
            ]
            answers.print(views.table("Changes", rows, columns))

    run(work, endpoint_of(endpoint))


def events(
    attempt_id: AttemptId,
    kind: Annotated[str, typer.Option("--kind", help="Only this kind of event.")] = "",
    as_json: Json = False,
    endpoint: Endpoint = None,
) -> None:
    """Print an attempt's events in order."""

    async def work() -> None:
        async with services(endpoint_of(endpoint)) as to:
            await following.get(to, attempt_id)
            async for event in paging.events(to, attempt_id, kind):
                print_json(event) if as_json else answers.print(_event_line(event), soft_wrap=True)

    run(work, endpoint_of(endpoint))


def _event_line(event: dict[str, Any]) -> Text:
    if "gap" in event:
        return Text.assemble(("gap ", "red"), f"{event['kind']} {one_line(json.dumps(event['gap']))}")
    skipped = ("kind", "attempt_id", "sequence", "timestamp_ns")
    facts = {name: value for name, value in event.items() if name not in skipped}
    told = " ".join(f"{name}={one_line(json.dumps(value, ensure_ascii=False))}" for name, value in facts.items())
    return Text.assemble((event["kind"], "cyan"), f" #{event['sequence']} ", told)


async def _act(
    to: Services, target: str, attempt: pb.Attempt, steps: list[Step] | None, agent_text: str | None
) -> None:
    """Wait for the sandbox, then play the script or run the agent's command."""
    running = await following.wait(to, attempt.attempt_id, following.STARTED)
    if running.state != pb.ATTEMPT_STATE_RUNNING:
        return
    request = pb.IssueAttemptTokenRequest(attempt_id=attempt.attempt_id)
    issued = await client.call(to.scheduler.IssueAttemptToken, request)
    if steps is not None:
        async with agent(issued.node_endpoint, issued.token) as sandbox:
            await player.play(sandbox, steps, following.tell)
        return
    assert agent_text is not None
    code = await agent_command.run_agent_command(
        agent_text, endpoint=agent_endpoint_of(target), attempt_id=attempt.attempt_id, token=issued.token
    )
    messages.print(f"  agent command ended with exit code {code}")
    async with agent(issued.node_endpoint, issued.token) as sandbox:
        await player.play(sandbox, [], following.tell)


async def _submit(to: Services, directory: Path, agent_id: str, priority: str) -> pb.Attempt:
    digest = await challenges.upload(to, directory)
    request = pb.SubmitAttemptRequest(
        request_id=request_ids.new(), challenge_digest=digest, agent_id=agent_id, priority=PRIORITIES[priority]
    )
    answer = await client.call(to.scheduler.SubmitAttempt, request)
    messages.print(f"attempt [bold]{answer.attempt.attempt_id}[/] of {answer.attempt.challenge_id} submitted")
    submitted: pb.Attempt = answer.attempt
    return submitted


def _show_record(attempt: pb.Attempt, as_json: bool) -> Exit:
    value = views.record(attempt)
    if as_json:
        print_json(value)
    else:
        answers.print(views.record_table(value))
    if attempt.artifact_path:
        messages.print(Text(f"diff and changed files: {attempt.artifact_path}"), soft_wrap=True)
    if attempt.state == pb.ATTEMPT_STATE_FAILED:
        fail(f"the attempt never started: {attempt.reason}")
    return Exit.VOIDED if attempt.state == pb.ATTEMPT_STATE_VOIDED else Exit.DONE


def _priority(priority: str) -> None:
    if priority not in PRIORITIES:
        fail(f"--priority {priority!r}: write {', '.join(PRIORITIES)}", Exit.USAGE)
