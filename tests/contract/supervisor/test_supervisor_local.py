"""The real binary as PID 1 of a local PID namespace, driven through the real link."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator

import pytest

from daemon.supervisor.errors import ExecRefused
from daemon.supervisor.types import ExecSpec
from tests.support.exec_behaviour import ExecBehaviour
from tests.support.file_behaviour import FileBehaviour
from tests.support.gobuild import built
from tests.support.resync_behaviour import ResyncBehaviour
from tests.support.supervisor_box import LIVENESS_SECONDS, SUPERVISOR_PROGRAM, LocalBox, local_box


@pytest.fixture
async def box() -> AsyncIterator[LocalBox]:
    async with local_box() as ready:
        yield ready


class TestExecLocally(ExecBehaviour):
    """Commands."""


class TestFilesLocally(FileBehaviour):
    """File calls."""


class TestResyncLocally(ResyncBehaviour):
    """Restarts."""


def test_it_refuses_to_run_outside_a_pid_namespace() -> None:
    done = subprocess.run([built(SUPERVISOR_PROGRAM)], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2
    assert "PID 1" in done.stderr


async def test_nothing_runs_before_the_assignment() -> None:
    async with local_box(assign=False) as box:
        with pytest.raises(ExecRefused, match="NOT_ASSIGNED"):
            await box.link.exec(ExecSpec(["true"]), exec_id="early")
        handle = await box.link.exec(ExecSpec(["true"], admin=True), exec_id="admin")
        assert (await handle.wait()).exit_code == 0


async def test_killing_pid_1_fails_every_call_at_once(box: LocalBox) -> None:
    handle = await box.start("sleep", "300")
    waiting = asyncio.create_task(handle.wait())
    await box.supervisor.kill()
    async with asyncio.timeout(LIVENESS_SECONDS):
        done = await asyncio.gather(waiting, box.link.ping(), return_exceptions=True)
    assert [type(e).__name__ for e in done] == ["SupervisorGone"] * 2


async def test_sigterm_is_a_stop(box: LocalBox) -> None:
    await box.start("sleep", "300")
    await box.start("sh", "-c", "kill -TERM 1", uid=0, gid=0, admin=True)
    async with asyncio.timeout(LIVENESS_SECONDS):
        assert await box.exit_code() == 0
