"""The supervisor as PID 1 of real containers: everything under gVisor, restarts under runc as well."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.exec_behaviour import ExecBehaviour
from tests.support.file_behaviour import FileBehaviour
from tests.support.resync_behaviour import ResyncBehaviour
from tests.support.supervisor_box import LIVENESS_SECONDS, ContainerBox, container_box

pytestmark = pytest.mark.docker

FORK_BOMB = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"
# Takes every process there is, but neither memory nor CPU, so that it is the limit on processes that is met.
HOARDER = """
import os, time
while True:
    try:
        if os.fork() == 0:
            time.sleep(300)
    except OSError:
        time.sleep(0.05)
"""


@pytest.fixture
async def box() -> AsyncIterator[ContainerBox]:
    async with container_box("gauntlet-runsc") as ready:
        yield ready


class TestExecInGvisor(ExecBehaviour):
    """Commands."""

    async def test_a_fork_bomb_times_out_with_all_its_children(self, box: ContainerBox) -> None:
        result, _, _ = await box.run("python3", "-c", FORK_BOMB, timeout_seconds=2)
        assert (result.timed_out, result.signal, result.error) == (True, 9, None)
        assert not [p for p in await box.processes() if "python3" in p]
        await box.link.write_file("after", b"files work too")

    async def test_without_a_process_left_ping_and_kill_still_work(self, box: ContainerBox) -> None:
        bomb = await box.start("python3", "-c", HOARDER)
        with pytest.raises(AssertionError, match=r"limit|fork|EAGAIN"):
            while True:  # until the limit is felt by others
                await box.shell("true & wait")
        async with asyncio.timeout(LIVENESS_SECONDS):
            await box.link.ping()
            assert await box.link.kill_all(9) == 0
            assert (await bomb.wait()).signal == 9
        assert await box.shell("echo usable") == "usable\n"


class TestFilesInGvisor(FileBehaviour):
    """File calls."""


class TestResyncInGvisor(ResyncBehaviour):
    """Restarts."""


class TestResyncUnderRunc(ResyncBehaviour):
    """Restarts, with the other runtime's way of passing stdin on."""

    @pytest.fixture
    async def box(self) -> AsyncIterator[ContainerBox]:
        async with container_box("runc") as ready:
            yield ready
