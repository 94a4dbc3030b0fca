"""Ways around the wall that need two ends: forged frames, covert channels between sandboxes, and `docker exec`."""

from __future__ import annotations

import asyncio
import json

import pytest
from gauntlet.daemon.v1 import agent_service_pb2 as pb

from cli import sandbox
from cli.clients import Agent
from daemon.supervisor.frames import Frame, FrameType, encode
from tests.support import escape
from tests.support.attempts import ended, running
from tests.support.challenge_files import make_challenge
from tests.support.environment import gauntlet
from tests.support.insides import container_of
from wire import client, request_ids

pytestmark = pytest.mark.docker
TOOL = "/workspace/tools/bin/hello"


async def test_forged_frames_are_output_and_nothing_else(environment, tmp_path):
    said = json.dumps({"exit_code": 0, "error": ""}).encode()
    kinds = (FrameType.EXITED, FrameType.ERROR, FrameType.READY, FrameType.SYNC_ACK, FrameType.STOP, FrameType.KILL_ALL)
    forged = b"".join(encode(Frame(kind, stream, payload=said)) for kind in kinds for stream in range(4))
    async with running(environment, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        await escape.put(agent)
        out, words = bytearray(), bytearray()
        end = await sandbox.run_command(
            agent,
            ["sh", "-c", f"/workspace/{escape.INSIDE} forge {forged.hex()}; exit 7"],
            timeout_seconds=60,
            stdout=out.extend,
            stderr=words.extend,
        )
        assert (end.exit_code, bytes(out), bytes(words)) == (7, forged, forged)
        alive = bytearray()
        assert (await sandbox.run_command(agent, ["echo", "alive"], stdout=alive.extend)).exit_code == 0
        assert alive == b"alive\n"
        await sandbox.submit(agent)
        record = await ended(to, attempt_id)
    assert (record["outcome"], record["fault"]) == ("SUBMITTED", "NONE")
    lines = gauntlet(environment, "events", attempt_id, "--json").stdout.splitlines()
    tools = [e for e in map(json.loads, lines) if e["kind"] == "tool_invocation"]
    told = [t for t in tools if "argv" in t["arguments"]]
    assert [t["exit_code"] for t in told if t["tool_name"] == "exec"] == [7, 0]


async def test_two_sandboxes_cannot_signal_each_other_through_the_shared_tools(environment, tmp_path):
    """Both see one read-only directory of the host: locks, access times and events of one must not reach the other."""
    challenge = make_challenge(tmp_path / "c")
    async with (
        running(environment, challenge, agent_id="sender") as (to, first, sender),
        running(environment, challenge, agent_id="receiver") as (_, second, receiver),
    ):
        await escape.put(sender)
        await escape.put(receiver)
        holding, looking = _Held(sender, "hold", TOOL), _Held(receiver, "try", TOOL)
        assert "ready" in await looking.first_line()
        assert "flock=" in await holding.first_line()
        said = await looking.finish()
        await holding.finish()
        assert said == "locked=false atime_moved=false events=false"
        for one in (sender, receiver):
            await sandbox.submit(one)
        for attempt_id in (first, second):
            assert (await ended(to, attempt_id))["outcome"] == "SUBMITTED"


async def test_what_the_host_executes_in_a_sandbox_is_filtered_alike(environment, tmp_path):
    async with running(environment, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        await escape.put(agent)
        container = await container_of(environment, to, attempt_id)
        for name in ("tracing.ptrace_traceme.64", "namespaces.unshare_user.64", "time.settimeofday.64"):
            code, text = container.exec_run([f"/workspace/{escape.INSIDE}", name], user="1000:1000")
            assert code == 0, text
            assert json.loads(text)["got"] == ("SIGSYS" if "ptrace" in name else "EPERM")
        await sandbox.submit(agent)
        await ended(to, attempt_id)


class _Held:
    """A command that prints a line, waits for its input, and goes on."""

    def __init__(self, agent: Agent, *arguments: str) -> None:
        self._agent = agent
        self._said = asyncio.Event()
        self._text = bytearray()
        self._exec_id = ""
        argv = [f"/workspace/{escape.INSIDE}", *arguments]
        self._task = asyncio.create_task(self._follow(argv))

    async def _follow(self, argv: list[str]) -> int:
        request = pb.ExecRequest(request_id=request_ids.new(), argv=argv, stdin_stream=True)
        async for event in self._agent.stub.Exec(request, metadata=self._agent.metadata):
            match event.WhichOneof("event"):
                case "started":
                    self._exec_id = event.started.exec_id
                case "stdout" | "stderr" as stream:
                    self._text += getattr(event, stream).data
                    self._said.set()
                case "exited":
                    return event.exited.exit_code
        raise AssertionError("the stream ended without an end event")

    async def first_line(self) -> str:
        await asyncio.wait_for(self._said.wait(), 30)
        return bytes(self._text).decode()

    async def finish(self) -> str:
        request = pb.WriteStdinRequest(exec_id=self._exec_id, offset=0, data=b"x", eof=True)
        await client.call(self._agent.stub.WriteStdin, request, token=self._agent.token)
        assert await asyncio.wait_for(self._task, 30) == 0, bytes(self._text)
        return bytes(self._text).decode().splitlines()[-1]
