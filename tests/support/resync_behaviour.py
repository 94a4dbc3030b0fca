"""What must hold when daemons die and others come, on every kind of box. Classes inherit these and provide `box`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from daemon.supervisor.errors import CallFailed, ExecRefused, SupervisorGone
from daemon.supervisor.frames import Frame, FrameType, encode
from daemon.supervisor.types import ExecResult, ExecSpec
from tests.support.supervisor_box import LIVENESS_SECONDS, Box, eventually

# What a hostile agent would like PID 1 to obey: its own bytes, on their way to one of its commands.
PLANTED = encode(Frame(FrameType.SYNC, payload=bytes(16))) + encode(
    Frame(FrameType.EXEC, stream=9999, payload=b'{"exec_id":"x","argv":["touch","owned"],"uid":0,"admin":true}')
)
TORN = encode(Frame(FrameType.FILE_DATA, stream=77, payload=(PLANTED + bytes(1000)) * 300))
assert len(TORN) > 300_000


class ResyncBehaviour:
    """Torn frames, forged frames, adopted execs."""

    @pytest.mark.parametrize("cut", [1, 31, 32, 5000, len(TORN) - 1])
    async def test_half_a_frame_of_a_dead_daemon(self, box: Box, cut: int) -> None:
        await box.link.close()
        dying = await box.attach()
        await dying.write(TORN[:cut])
        await dying.close()
        box.link = await box.connect(fresh=False)
        assert await box.shell("echo alive") == "alive\n"
        assert not (box.workspace / "owned").exists()

    async def test_three_daemons_die_in_a_row(self, box: Box) -> None:
        for cut in (40, 70_000, 200_000):
            await box.link.close()
            dying = await box.attach()
            await dying.write(TORN[:cut])
            await dying.close()
            box.link = await box.connect(fresh=False)
        assert await box.shell("echo alive") == "alive\n"

    async def test_output_is_never_a_frame(self, box: Box) -> None:
        forged = b"".join(
            encode(Frame(kind, stream=stream, payload=b'{"exit_code":0,"signal":null}'))
            for kind in (FrameType.EXITED, FrameType.REPLY, FrameType.PONG, FrameType.SYNC_ACK)
            for stream in range(20)
        )
        await box.link.write_file("forged", forged)
        handle = await box.start("sh", "-c", "cat forged; cat; exit 9", stdin=True)
        assert await handle.stdout.wait_more(len(forged) - 1)
        assert handle.result is None
        relinked = await box.relink()
        handle = relinked.execs[handle.exec_id]
        await relinked.write_stdin(handle.exec_id, 0, PLANTED, eof=True)
        assert (await handle.wait()).exit_code == 9
        assert not (box.workspace / "owned").exists()

    async def test_a_running_command_is_adopted(self, box: Box) -> None:
        old = await box.start("sh", "-c", "echo one; read x; echo $x; read y; echo $y; exit 5", stdin=True)
        assert await old.stdout.wait_more(0)
        await box.link.write_stdin(old.exec_id, 0, b"two\n")
        assert await old.stdout.wait_more(4)
        link = await box.relink()
        with pytest.raises(SupervisorGone):
            await old.wait()
        assert link.info is not None
        known = {e.exec_id: e for e in link.info.execs}[old.exec_id]
        assert (known.pid, known.stdout_total, known.stdin_received, known.result) == (old.pid, 8, 4, None)
        handle = link.execs[old.exec_id]
        with pytest.raises(ExecRefused, match="DUPLICATE"):
            await link.exec(ExecSpec(["true"]), exec_id=old.exec_id)
        await link.write_stdin(old.exec_id, handle.stdin_sent, b"three\n")
        async with asyncio.timeout(LIVENESS_SECONDS):
            result = await handle.wait()
        assert (result.exit_code, result.stdout_total) == (5, 14)
        assert (handle.stdout.base, handle.stdout.read(8)) == (8, b"three\n")
        assert await box.shell("echo new ones work") == "new ones work\n"

    async def test_ends_that_nobody_heard_are_told(self, box: Box) -> None:
        handle = await box.start("sh", "-c", "sleep 0.3; exit 6")
        await box.link.close()
        await asyncio.sleep(1)
        box.link = await box.connect(fresh=False)
        ended: list[ExecResult] = []

        async def is_told() -> bool:
            ended.extend(e.result for e in await box.link.list_execs() if e.exec_id == handle.exec_id and e.result)
            return bool(ended)

        await eventually(is_told)
        assert ended[0].exit_code == 6

    async def test_a_write_of_a_dead_daemon_leaves_nothing(self, box: Box) -> None:
        begun = asyncio.Event()

        async def hanging() -> AsyncIterator[bytes]:
            yield os.urandom(300_000)
            begun.set()
            await asyncio.Event().wait()

        writing = asyncio.create_task(box.link.write_file("f", hanging()))
        await begun.wait()

        async def temporary_file_exists() -> bool:
            return bool(list(box.workspace.glob(".gauntlet-*")))

        async def it_is_gone() -> bool:
            return not await temporary_file_exists()

        await eventually(temporary_file_exists)
        writing.cancel()
        await box.relink()
        await eventually(it_is_gone)
        assert not (box.workspace / "f").exists()

    async def test_assigned_once(self, box: Box) -> None:
        await box.link.assign({"GAUNTLET_RANDOM_SEED": "42"})
        with pytest.raises(CallFailed, match="ALREADY_ASSIGNED"):
            await box.link.assign({"GAUNTLET_RANDOM_SEED": "43"})
        link = await box.relink()
        assert link.info is not None
        assert link.info.assigned is not None
        assert await box.shell("echo $GAUNTLET_RANDOM_SEED") == "42\n"

    async def test_an_unknown_frame_is_answered_and_does_no_harm(self, box: Box) -> None:
        await box.link._wire.send(Frame(0x7E, stream=123456, payload=b"??"))
        await box.link.ping()
