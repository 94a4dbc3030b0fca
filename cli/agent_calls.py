"""`gauntlet exec|read|write`: an agent's calls against a running attempt, by an operator or by an agent command."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import typer
from gauntlet.scheduler.v1 import agent_gateway_service_pb2 as gateway_pb
from gauntlet.scheduler.v1 import agent_gateway_service_pb2_grpc as gateway_grpc
from gauntlet.scheduler.v1 import scheduler_service_pb2 as pb
from rich.text import Text

from cli import sandbox
from cli.agent_command import token_of_environment
from cli.clients import Agent, agent, services
from cli.options import Endpoint, Json, endpoint_of
from cli.plain import one_line
from cli.running import CommandFailed, Exit, messages, print_json, run
from wire import client

AttemptId = Annotated[str, typer.Argument(help="att_…")]
STDIN_CHUNK = 256 * 1024


@asynccontextmanager
async def _agent(attempt_id: str, endpoint: str) -> AsyncIterator[Agent]:
    """The attempt's sandbox: with the token this process was given, else with one issued to the operator."""
    token = token_of_environment()
    if token is not None:
        async with client.connect(endpoint) as channel:
            stub = gateway_grpc.AgentGatewayServiceStub(channel)
            request = gateway_pb.GetSessionRequest(attempt_id=attempt_id)
            node = (await client.call(stub.GetSession, request, token=token)).node_endpoint
    else:
        async with services(endpoint) as to:
            issued = await client.call(
                to.scheduler.IssueAttemptToken, pb.IssueAttemptTokenRequest(attempt_id=attempt_id)
            )
            token, node = issued.token, issued.node_endpoint
    if not node:
        raise CommandFailed(f"attempt {attempt_id} has no sandbox now")
    async with agent(node, token) as connection:
        yield connection


async def _standard_input() -> AsyncIterator[bytes]:
    while chunk := sys.stdin.buffer.read(STDIN_CHUNK):
        yield chunk


def exec_command(
    attempt_id: AttemptId,
    argv: Annotated[list[str], typer.Argument(help="Command and arguments, after `--`.")],
    cwd: Annotated[str | None, typer.Option("--cwd")] = None,
    timeout: Annotated[float | None, typer.Option("--timeout", help="Seconds.")] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Pass standard input on.")] = False,
    as_json: Json = False,
    endpoint: Endpoint = None,
) -> None:
    """Run a command in an attempt's sandbox; leaves with its exit code."""
    if timeout is not None and not 0 < timeout < 10**9:
        raise typer.BadParameter("must be above zero", param_hint="--timeout")
    collected: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}

    async def work() -> None:
        async with _agent(attempt_id, endpoint_of(endpoint)) as to:
            end = await sandbox.run_command(
                to,
                argv,
                cwd=cwd,
                stdin_stream=_standard_input() if stdin else None,
                timeout_seconds=timeout,
                stdout=collected["stdout"].extend if as_json else _writer(sys.stdout),
                stderr=collected["stderr"].extend if as_json else _writer(sys.stderr),
            )
        if as_json:
            texts = {name: bytes(data).decode(errors="replace") for name, data in collected.items()}
            print_json({**vars(end), "duration_ms": end.seconds * 1e3, **texts})
        elif end.error or end.timed_out:
            messages.print(Text(one_line(str(end)), "yellow"))
        code = end.exit_code if end.exit_code is not None else 128 + (end.signal or 0)
        raise typer.Exit(code if end.exit_code is not None or end.signal else int(Exit.FAILED))

    run(work, endpoint_of(endpoint))


def read(attempt_id: AttemptId, path: str, as_json: Json = False, endpoint: Endpoint = None) -> None:
    """Print a file of an attempt's workspace."""
    data = bytearray()

    async def work() -> None:
        async with _agent(attempt_id, endpoint_of(endpoint)) as to:
            size = await sandbox.read_file(to, path, data.extend if as_json else _writer(sys.stdout))
        if as_json:
            print_json({"path": path, "size": size, "content": data.decode(errors="replace")})

    run(work, endpoint_of(endpoint))


def write(attempt_id: AttemptId, path: str, as_json: Json = False, endpoint: Endpoint = None) -> None:
    """Write standard input to a file of an attempt's workspace."""

    async def work() -> None:
        data = sys.stdin.buffer.read()
        async with _agent(attempt_id, endpoint_of(endpoint)) as to:
            await sandbox.write_file(to, path, data)
        if as_json:
            print_json({"path": path, "size": len(data)})

    run(work, endpoint_of(endpoint))


def _writer(stream: object) -> sandbox.Sink:
    buffer = getattr(stream, "buffer")  # noqa: B009 - typing.TextIO does not know it

    def put(data: bytes) -> None:
        buffer.write(data)
        buffer.flush()

    return put
