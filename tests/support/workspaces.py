"""A workspace room under test: managers over one state directory, a stored challenge, and an agent's hands."""

from __future__ import annotations

import asyncio
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from daemon.workspace import mountinfo
from daemon.workspace.manager import WorkspaceConfig, WorkspaceManager
from daemon.workspace.model import DiffResult, Slot
from tests.support.challenges import packed, write_challenge

DISK = 32 << 20


class Host:
    """What a test needs: managers over one state directory, a stored template, and the agent's hands."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = directory / "state"
        self.executor = ThreadPoolExecutor(4)
        self.challenge = write_challenge(directory / "challenge")
        self.package = directory / "package.tar"
        self.digest = packed(self.challenge, self.package)
        self.manager = self.new_manager()
        self._entries = 0

    def new_manager(self, **options: object) -> WorkspaceManager:
        """A manager as another life of the daemon would make it."""
        config = WorkspaceConfig(self.state, reserve_bytes=64 << 20, **options)  # type: ignore[arg-type]
        return WorkspaceManager(config, self.executor)

    async def assigned(self) -> Slot:
        """A new slot with the challenge in it."""
        self._entries += 1
        slot = await self.manager.prepare_slot(f"sbx_{self._entries}", DISK)
        return await self.manager.assign(slot, self.digest)

    async def extracted(self, slot: Slot, attempt_id: str = "att_1") -> DiffResult:
        """Freeze, then the diff."""
        return await self.manager.extract(await self.manager.freeze(slot), attempt_id)

    def leftovers(self) -> tuple[list[Path], list[Path], list[Path]]:
        """Mounts, loop devices and slot directories below the state directory."""
        directories = [path for base in ("slots", "pool") for path in (self.state / base).glob("*")]
        return (
            [mount.target for mount in mountinfo.below(self.state)],
            list(mountinfo.loop_devices(self.state)),
            directories,
        )

    async def nothing_left(self) -> None:
        """Wait for the kernel to free loop devices (it does so behind the unmount); fail after 10 s."""
        async with asyncio.timeout(10):
            while self.leftovers() != ([], [], []):  # noqa: ASYNC110 (the kernel sends no event for it)
                await asyncio.sleep(0.02)


def agent(slot: Slot, script: str) -> None:
    """Run a shell script as uid 1000 in the slot, with umask 022."""
    _as_agent(slot, ["bash", "-euc", f"umask 022; {script}"])


def agent_python(slot: Slot, script: str) -> None:
    """Run Python as uid 1000 in the slot."""
    _as_agent(slot, ["/usr/bin/python3", "-c", script])


def _as_agent(slot: Slot, argv: list[str]) -> None:
    # Not by Popen's `user`: that forks, which gRPC's handlers do not survive in a process that has used it.
    done = subprocess.run(
        ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", *argv],
        cwd=slot.workspace,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
