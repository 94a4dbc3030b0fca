"""A running supervisor for behaviour tests: locally in a PID namespace, or as PID 1 of a real container.

`Box.link` is connected and assigned. The behaviour classes (`exec_behaviour`, `file_behaviour`, `resync_behaviour`) ask
for a fixture `box` and run unchanged on either.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import docker

from daemon.runtime.docker import DockerRuntime
from daemon.runtime.port import Runtime
from daemon.runtime.types import Created, Mount, Resources, SandboxSpec
from daemon.supervisor.execs import ExecHandle
from daemon.supervisor.link import SupervisorLink
from daemon.supervisor.local_transport import LocalSupervisor
from daemon.supervisor.transport import ByteTransport
from daemon.supervisor.types import ExecResult, ExecSpec
from images.build import ensure_image
from tests.support.gobuild import GoProgram, built

SUPERVISOR_PROGRAM = GoProgram("gauntlet-supervisor", "images/supervisor")
SECCOMP_PROFILE = Path(__file__).resolve().parents[2] / "seccomp" / "profile.json"
RUNSC_ROOT = Path("/var/run/docker/runtime-runc/moby")
LIVENESS_SECONDS = 30
MIB = 1 << 20
SMALL_DISK = 2 * MIB
RESOURCES = Resources(memory_bytes=2048 * MIB, cpu_millis=2000, disk_bytes=512 * MIB, pids=256, tmp_bytes=16 * MIB)
ASSIGNED = {"GAUNTLET_RANDOM_SEED": "42"}
_ids = itertools.count(1)


async def eventually(what: Callable[[], Awaitable[bool]]) -> None:
    """Ask until it holds: for things in another kernel that cannot tell us."""
    async with asyncio.timeout(LIVENESS_SECONDS):
        while not await what():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


class Box(ABC):
    """One sandbox. `workspace` is the host's view of its /workspace; `small` a directory inside with little room."""

    workspace: Path
    small: str
    small_bytes: int
    link: SupervisorLink

    @abstractmethod
    async def attach(self) -> ByteTransport:
        """One more connection to PID 1."""

    @abstractmethod
    async def exit_code(self) -> int:
        """Wait for PID 1's end."""

    async def connect(self, *, fresh: bool) -> SupervisorLink:
        """A link over a new connection."""
        link = SupervisorLink(await self.attach(), fresh=fresh)
        async with asyncio.timeout(LIVENESS_SECONDS):
            await link.connect()
        return link

    async def relink(self) -> SupervisorLink:
        """What a restarted daemon does; the old link is closed."""
        await self.link.close()
        self.link = await self.connect(fresh=False)
        return self.link

    def fifo(self, name: str) -> None:
        """Make a FIFO of the agent's; from the host, since a sandbox's filter refuses mknod."""
        os.mkfifo(self.workspace / name)
        os.chown(self.workspace / name, 1000, 1000)

    async def start(self, *argv: str | bytes, **spec: Any) -> ExecHandle:
        """Start a command."""
        return await self.link.exec(ExecSpec(argv, **spec), exec_id=f"exe_{next(_ids)}")

    async def run(self, *argv: str | bytes, **spec: Any) -> tuple[ExecResult, bytes, bytes]:
        """Run a command to its end: result, stdout, stderr."""
        handle = await self.start(*argv, **spec)
        async with asyncio.timeout(LIVENESS_SECONDS):
            result = await handle.wait()
        return result, handle.stdout.read(0, 1 << 24), handle.stderr.read(0, 1 << 24)

    async def shell(self, script: str, **spec: Any) -> str:
        """A shell script's stdout; it must succeed."""
        result, out, err = await self.run("sh", "-c", script, **spec)
        assert result.exit_code == 0, (result, err)
        return out.decode()

    async def processes(self) -> list[str]:
        """`state command line` of every process but PID 1, this listing and the file workers."""
        script = (
            'for p in /proc/[0-9]*; do read -r line < "$p/stat" || continue; '
            's=${line##*)}; s=${s# }; printf \'%s %s %s\\n\' "${p#/proc/}" "${s%% *}" '
            '"$(tr "\\0" " " < "$p/cmdline")"; done 2>/dev/null; exit 0'
        )
        lines = [line.split(" ", 1) for line in (await self.shell(script)).splitlines()]
        return [
            rest
            for pid, rest in lines
            if pid != "1" and "/proc/[0-9]*" not in rest and "file-worker" not in rest and "tr \\0" not in rest
        ]

    async def until_no(self, needle: str) -> None:
        """Wait until no process shows `needle`."""

        async def gone() -> bool:
            return not any(needle in p for p in await self.processes())

        await eventually(gone)


async def command(*argv: str) -> None:
    """Run a program of the host's to its end; it must succeed."""
    process = await asyncio.create_subprocess_exec(*argv)
    assert await process.wait() == 0, argv


def _shared_directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="gauntlet-box-"))
    directory.chmod(0o755)
    return directory


class LocalBox(Box):
    """PID 1 of a PID namespace on this machine."""

    def __init__(self, directory: Path) -> None:
        self.workspace = directory / "workspace"
        self.small = "small"
        self.small_bytes = SMALL_DISK
        self.supervisor = LocalSupervisor(directory / "gauntlet-supervisor", self.workspace)

    async def attach(self) -> ByteTransport:
        return await self.supervisor.attach()

    async def exit_code(self) -> int:
        return await self.supervisor.wait()


@contextlib.asynccontextmanager
async def local_box(*, assign: bool = True) -> AsyncIterator[LocalBox]:
    """A local sandbox with a link, gone afterwards."""
    directory = _shared_directory()
    box = LocalBox(directory)
    shutil.copy2(built(SUPERVISOR_PROGRAM), directory / "gauntlet-supervisor")
    (directory / "gauntlet-supervisor").chmod(0o755)
    small = box.workspace / box.small
    small.mkdir(parents=True)
    os.chown(box.workspace, 1000, 1000)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK},uid=1000,gid=1000,mode=755", "tmpfs", str(small)]
    await command(*mount)
    try:
        await box.supervisor.start()
        try:
            box.link = await box.connect(fresh=True)
            if assign:
                await box.link.assign(ASSIGNED)
            yield box
        finally:
            with contextlib.suppress(AttributeError):  # connecting itself has failed
                await box.link.close()
            await box.supervisor.kill()
    finally:
        await command("umount", "--lazy", str(small))
        shutil.rmtree(directory)


class ContainerBox(Box):
    """PID 1 of a container of the stack image."""

    def __init__(self, runtime: Runtime, created: Created, workspace: Path) -> None:
        self.runtime = runtime
        self.created = created
        self.workspace = workspace
        self.small = "/tmp"
        self.small_bytes = 16 * MIB

    async def attach(self) -> ByteTransport:
        return await self.runtime.attach(self.created.container_id)

    async def exit_code(self) -> int:
        codes: list[int] = []

        async def ended() -> bool:
            seen = await self.runtime.inspect(self.created.container_id)
            assert seen is not None
            codes.extend([] if seen.exit_code is None else [seen.exit_code])
            return bool(codes)

        await eventually(ended)
        return codes[0]


def _spec(runtime: str, image: str, workspace: Path) -> SandboxSpec:
    entry = f"sbx_{secrets.token_hex(6)}"
    return SandboxSpec(
        name=f"supervisor-{entry}",
        instance="supervisor-tests",
        entry_id=entry,
        template="sha256:" + "0" * 64,
        image=image,
        runtime=runtime,
        resources=RESOURCES,
        seccomp_profile=SECCOMP_PROFILE.read_text(),
        mounts=(Mount(workspace, "/workspace"),),
    )


def _stack_image(socket: Path) -> str:
    client = docker.DockerClient(base_url=f"unix://{socket}")
    try:
        return str(client.images.get(ensure_image("python311", client).tag).id)
    finally:
        client.close()


@contextlib.asynccontextmanager
async def container_box(name: str) -> AsyncIterator[ContainerBox]:
    """A real sandbox under the runtime `name` with a link, destroyed afterwards."""
    socket = Path((os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock").removeprefix("unix://"))
    image = await asyncio.to_thread(_stack_image, socket)
    directory = _shared_directory()
    workspace = directory / "workspace"
    workspace.mkdir()
    os.chown(workspace, 1000, 1000)
    runtime = DockerRuntime(socket, runsc_root=RUNSC_ROOT)
    try:
        created = await runtime.create(_spec(name, image, workspace))
        try:
            box = ContainerBox(runtime, created, workspace)
            box.link = SupervisorLink(created.transport)
            async with asyncio.timeout(LIVENESS_SECONDS):
                await box.link.connect()
            await box.link.assign(ASSIGNED)
            yield box
            await box.link.close()
        finally:
            await created.transport.close()
            await runtime.destroy(created.container_id)
    finally:
        await runtime.close()
        shutil.rmtree(directory)
