"""What an agent's client gets from the API, over the real path: socket, daemon, supervisor, gVisor."""

from __future__ import annotations

import asyncio
import hashlib
import os

import grpc
import psutil
import pytest
from gauntlet.daemon.v1 import agent_service_pb2 as pb

from cli import sandbox
from tests.support.attempts import ended, running
from tests.support.challenge_files import make_challenge
from wire import client, errors, request_ids

pytestmark = pytest.mark.docker
KIB, MIB = 1024, 1024**2
SIZES = [0, 1, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 60 * MIB]


@pytest.fixture
async def attempt(environment, tmp_path):
    async with running(environment, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        yield to, attempt_id, agent
        try:
            await sandbox.submit(agent)
        except errors.WireFailure as failure:
            assert failure.reason == "ATTEMPT_ENDED"
        await ended(to, attempt_id)


async def run(agent, *argv, **more):
    out, err = bytearray(), bytearray()
    end = await sandbox.run_command(agent, list(argv), stdout=out.extend, stderr=err.extend, **more)
    return end, bytes(out), bytes(err)


async def test_much_output_is_counted_whole_and_kept_to_its_cap(environment, attempt):
    _, _, agent = attempt
    daemon = psutil.Process(environment.processes["node"].pid)
    before = daemon.memory_info().rss
    script = "head -c 200000000 /dev/zero; exit 7"
    request = pb.ExecRequest(request_id=request_ids.new(), argv=["sh", "-c", script], max_output_bytes=MIB)
    received = 0
    async for event in agent.stub.Exec(request, metadata=agent.metadata):
        received += len(event.stdout.data)
    exited = event.exited
    assert (exited.exit_code, exited.stdout_bytes, exited.truncated) == (7, 200_000_000, True)
    assert received == MIB
    assert daemon.memory_info().rss - before < 40 * MIB


async def test_output_is_bytes(attempt):
    _, _, agent = attempt
    end, out, err = await run(agent, "printf", r"\377\000\303\050|\360\237")
    assert (end.exit_code, out, err) == (0, b"\xff\x00\xc3(|\xf0\x9f", b"")


async def test_a_timeout_ends_everything_the_command_started(attempt):
    _, _, agent = attempt
    end, out, _ = await run(agent, "sh", "-c", "echo before; sleep 300 & sleep 300", timeout_seconds=1)
    assert (end.timed_out, out) == (True, b"before\n")
    _, left, _ = await run(agent, "sh", "-c", "ps -eo args | grep -c '^sleep 300'")
    assert left == b"0\n"


async def test_a_background_child_does_not_hold_its_command(attempt):
    _, _, agent = attempt
    async with asyncio.timeout(10):
        end, out, _ = await run(agent, "sh", "-c", "sleep 100 & echo hi")
    assert (end.exit_code, out) == (0, b"hi\n")


async def test_a_missing_program_ends_once_with_127(attempt):
    _, _, agent = attempt
    end, _, _ = await run(agent, "no-such-program")
    assert end.exit_code == 127
    assert "no-such-program" in end.error


async def test_forty_megabytes_of_input_arrive_whole(attempt):
    _, _, agent = attempt
    data = os.urandom(40 * MIB)
    _, out, _ = await run(agent, "sha256sum", stdin=data)
    assert out.split()[0].decode() == hashlib.sha256(data).hexdigest()


async def test_ten_commands_at_once(attempt):
    _, _, agent = attempt
    results = await asyncio.gather(*(run(agent, "sh", "-c", f"sleep 0.2; echo {n}") for n in range(10)))
    assert [out for _, out, _ in results] == [f"{n}\n".encode() for n in range(10)]


async def test_a_repeated_request_is_one_command_and_another_body_is_refused(attempt):
    _, _, agent = attempt
    request = pb.ExecRequest(request_id=request_ids.new(), argv=["sh", "-c", "echo x >> submissions/once"])
    for _ in range(3):
        async for _event in agent.stub.Exec(request, metadata=agent.metadata):
            pass
    _, out, _ = await run(agent, "cat", "submissions/once")
    assert out == b"x\n"
    request.argv[2] = "echo y >> submissions/once"
    with pytest.raises(grpc.RpcError) as caught:
        async for _event in agent.stub.Exec(request, metadata=agent.metadata):
            pass
    assert errors.decode(caught.value).reason == "REQUEST_ID_REUSED"


async def test_output_can_be_read_again_from_an_offset(attempt):
    _, _, agent = attempt
    request = pb.ExecRequest(request_id=request_ids.new(), exec_id="exe_mine", argv=["printf", "0123456789"])
    async for _event in agent.stub.Exec(request, metadata=agent.metadata):
        pass
    again = bytearray()
    attach = pb.AttachExecRequest(exec_id="exe_mine", stdout_offset=4)
    async for event in agent.stub.AttachExec(attach, metadata=agent.metadata):
        again += event.stdout.data
    assert bytes(again) == b"456789"
    assert event.exited.exit_code == 0


@pytest.mark.parametrize("bad", [0.0, -1.0, 1e12])
async def test_absurd_timeouts_are_refused(attempt, bad):
    _, _, agent = attempt
    with pytest.raises(grpc.RpcError) as caught:
        await run(agent, "true", timeout_seconds=bad)
    assert errors.decode(caught.value).reason == "EXEC_INVALID"


async def test_a_command_too_large_for_a_process_is_refused_and_the_largest_runs(attempt):
    _, _, agent = attempt
    for words in (["echo", "x" * 900_000], ["echo", "\x01" * 40_000], ["true", *["y"] * 60_000]):
        with pytest.raises(grpc.RpcError) as caught:
            await run(agent, *words)
        assert errors.decode(caught.value).reason == "EXEC_INVALID"
    end, out, _ = await run(agent, "echo", "x" * 120_000)
    assert (end.exit_code, len(out)) == (0, 120_001)


async def test_files_of_every_size_come_back_by_digest(attempt):
    _, _, agent = attempt
    for size in SIZES:
        data = os.urandom(size)
        await sandbox.write_file(agent, "submissions/blob", data)
        back = bytearray()
        assert await sandbox.read_file(agent, "submissions/blob", back.extend) == size
        assert hashlib.sha256(back).digest() == hashlib.sha256(data).digest()


async def test_a_write_over_quota_is_a_typed_error_and_leaves_nothing(attempt):
    to, attempt_id, agent = attempt
    with pytest.raises(grpc.RpcError) as caught:
        await sandbox.write_file(agent, "submissions/huge", bytes(120 * MIB))
    failure = errors.decode(caught.value)
    assert (failure.code, failure.reason) == ("RESOURCE_EXHAUSTED", "DISK_FULL")
    _, out, _ = await run(agent, "ls", "-A", "submissions")
    assert b"huge" not in out
    assert out.split() == [b"code", b"docs"]
    await sandbox.write_file(agent, "submissions/small", b"x")
    await sandbox.submit(agent)
    assert "DISK_FULL" in (await ended(to, attempt_id))["flags"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [("challenge/none", "FILE_ENOENT"), ("challenge", "FILE_EISDIR"), ("/etc/shadow", "FILE_EACCES")],
)
async def test_reads_that_fail_say_why(attempt, path, reason):
    _, _, agent = attempt
    with pytest.raises(grpc.RpcError) as caught:
        await sandbox.read_file(agent, path, len)
    assert errors.decode(caught.value).reason == reason


async def test_directories_are_made_listed_described_and_removed(attempt):
    _, _, agent = attempt
    make = pb.MakeDirectoryRequest(request_id=request_ids.new(), path="submissions/a/b", parents=True)
    await client.call(agent.stub.MakeDirectory, make, token=agent.token)
    await run(agent, "sh", "-c", "cd submissions/a && ln -s /etc/shadow link")
    listing = await client.call(
        agent.stub.ListDirectory, pb.ListDirectoryRequest(path="submissions/a"), token=agent.token
    )
    assert [(e.name, e.type) for e in listing.entries] == [(b"b", "dir"), (b"link", "symlink")]
    assert listing.entries[1].target == b"/etc/shadow"
    stat = await client.call(agent.stub.StatFile, pb.StatFileRequest(path="submissions/a/link"), token=agent.token)
    assert stat.info.type == "symlink"
    remove = pb.RemoveFileRequest(request_id=request_ids.new(), path="submissions/a", recursive=True)
    await client.call(agent.stub.RemoveFile, remove, token=agent.token)
    with pytest.raises(errors.WireFailure) as caught:
        await client.call(agent.stub.StatFile, pb.StatFileRequest(path="submissions/a"), token=agent.token)
    assert caught.value.code == "NOT_FOUND"


async def test_without_the_right_token_nothing_is_reached(attempt):
    _, _, agent = attempt
    for token in ("", "gst1.x", agent.token[:-1] + ("0" if agent.token[-1] != "0" else "1")):
        with pytest.raises(errors.WireFailure) as caught:
            await client.call(agent.stub.StatFile, pb.StatFileRequest(path="challenge"), token=token)
        assert caught.value.code == "UNAUTHENTICATED"


def test_only_the_agents_sockets_are_open_to_all(environment):
    modes = {path.stem: path.stat().st_mode & 0o777 for path in environment.root.glob("*.sock")}
    assert modes["node-agents"] == modes["scheduler-agents"] == 0o666
    assert not any(modes[name] & 0o007 for name in ("node", "scheduler", "collector"))
