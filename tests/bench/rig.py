"""Sandboxes made and held by the bench's own process: the daemon's runtime, workspace and entry factory, no service.

For what no service offers: a ping of PID 1, an exec without gRPC and without a record. Everything made is destroyed.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import docker

from daemon.pool.clock import SystemClock
from daemon.pool.entry import PoolEntry
from daemon.pool.sandboxes import SandboxFactory, SandboxSettings
from daemon.pool.template import Template, profile_digest
from daemon.runtime.docker import DockerRuntime
from daemon.runtime.types import Resources
from daemon.supervisor.types import ExecResult, ExecSpec, Output
from daemon.workspace.manager import WorkspaceConfig, WorkspaceManager
from formats.package import pack
from images.build import ensure_image
from infra.local import runtime_registration as registration
from tests.support.challenge_files import make_challenge
from tests.support.environment import DEFAULTS, REPOSITORY

CLOSE_SECONDS = 30.0


class Rig:
    """Makes assigned sandboxes; use `rig()`."""

    def __init__(self, factory: SandboxFactory, workspace: WorkspaceManager, template: Template, digest: str) -> None:
        self._factory = factory
        self._workspace = workspace
        self._template = template
        self._digest = digest
        self._made: list[PoolEntry] = []

    async def sandbox(self, **limits: int) -> PoolEntry:
        """A sandbox with a challenge in it; `limits` are resources that differ from the usual ones."""
        template = replace(self._template, resources=replace(self._template.resources, **limits))
        entry = await self._factory.create(template)
        self._made.append(entry)
        entry.slot = await self._workspace.assign(entry.slot, self._digest)
        await entry.link.assign({})
        return entry

    async def close(self) -> None:
        """Destroy every sandbox."""
        for entry in self._made:
            await self._factory.destroy(entry)
        if left := await self._factory.close(CLOSE_SECONDS):
            raise RuntimeError(f"{left} sandboxes could not be destroyed")


@asynccontextmanager
async def rig() -> AsyncIterator[Rig]:
    """A rig over a state directory of its own."""
    directory = Path(tempfile.mkdtemp(prefix="gben-", dir="/tmp"))
    instance = f"b{secrets.token_hex(4)}"
    profile = (REPOSITORY / "seccomp" / "profile.json").read_text()
    runtime = DockerRuntime()
    try:
        with ThreadPoolExecutor(4) as executor:
            workspace = WorkspaceManager(WorkspaceConfig(directory / "state", reserve_bytes=0), executor)
            await workspace.start()
            package = directory / "package.tar"
            with package.open("w+b") as file:
                digest = pack(make_challenge(directory / "answer"), file)
            await workspace.add_template(package, digest)
            settings = SandboxSettings(instance, {profile_digest(profile): profile})
            factory = SandboxFactory(runtime, workspace, SystemClock(), settings)
            made = Rig(factory, workspace, await _template(runtime, profile), digest)
            try:
                yield made
            finally:
                await made.close()
                await workspace.close()
    finally:
        await runtime.close()
        shutil.rmtree(directory)


async def _template(runtime: DockerRuntime, profile: str) -> Template:
    client = docker.from_env()
    try:
        tag = (await asyncio.to_thread(ensure_image, "python311", client)).tag
    finally:
        client.close()
    return Template(
        stack="python311",
        image_digest=await runtime.image_digest(tag),
        resources=Resources(**DEFAULTS),
        profile_digest=profile_digest(profile),
        runtime=registration.RUNSC,
        runtime_digest="",
    )


async def execute(entry: PoolEntry, *argv: str) -> ExecResult:
    """Run a command to its end over the link alone."""
    handle = await entry.link.exec(ExecSpec(argv=argv), exec_id=f"exe_{secrets.token_hex(8)}")
    return await handle.wait()


async def answer(entry: PoolEntry, *argv: str) -> str:
    """Run a command to its end over the link alone; what it printed. Raises RuntimeError when it fails."""
    handle = await entry.link.exec(ExecSpec(argv=argv), exec_id=f"exe_{secrets.token_hex(8)}")
    said = b"".join([event.data async for event in handle.events() if isinstance(event, Output)])
    if (result := await handle.wait()).exit_code != 0:
        raise RuntimeError(f"{argv[0]} ended with {result.exit_code}: {said.decode(errors='replace')}")
    return said.decode()
