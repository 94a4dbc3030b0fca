"""What ended commands cost the daemon: their output is let go when newer ones need the room, their request is not."""

from __future__ import annotations

import grpc
import psutil
import pytest
from gauntlet.daemon.v1 import agent_service_pb2 as pb

from cli import sandbox
from tests.support.attempts import ended, running
from tests.support.challenge_files import make_challenge
from wire import errors, request_ids

pytestmark = pytest.mark.docker
MIB = 1024**2
COMMANDS = 60
# What the daemon may keep of an attempt's ended commands, and as much again for all else that 60 commands touch.
ALLOWED_BYTES = 2 * 8 * MIB


async def _shout(agent, request_id: str) -> int:
    """A megabyte of output; how much of it came."""
    argv = ["sh", "-c", f"echo x >> submissions/log; head -c {MIB} /dev/zero"]
    request = pb.ExecRequest(request_id=request_id, argv=argv, max_output_bytes=MIB)
    return sum([len(event.stdout.data) async for event in agent.stub.Exec(request, metadata=agent.metadata)])


async def test_the_output_of_many_commands_is_let_go_and_none_runs_twice(environment, tmp_path):
    async with running(environment, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        daemon = psutil.Process(environment.processes["node"].pid)
        first = request_ids.new()
        assert await _shout(agent, first) == MIB
        assert await _shout(agent, first) == MIB
        before = daemon.memory_info().rss
        for _ in range(COMMANDS - 1):
            assert await _shout(agent, request_ids.new()) == MIB
        assert daemon.memory_info().rss - before < ALLOWED_BYTES
        with pytest.raises(grpc.RpcError) as caught:
            await _shout(agent, first)
        assert errors.decode(caught.value).reason == "EXEC_NOT_FOUND"
        log = bytearray()
        await sandbox.read_file(agent, "submissions/log", log.extend)
        assert bytes(log) == b"x\n" * COMMANDS
        await sandbox.submit(agent)
        await ended(to, attempt_id)
