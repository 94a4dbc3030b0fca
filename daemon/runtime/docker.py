"""The runtime port on a Docker engine, with runsc or runc as the container's runtime.

Composes its siblings: `docker_engine` (threads, errors), `docker_create`, `docker_attach`, `docker_destroy`,
`docker_events`, `docker_observe`, `docker_late`. Works with engines of API 1.40 and later.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import docker
import docker.errors

from daemon.runtime.docker_attach import attach_socket
from daemon.runtime.docker_create import ATTACH_SECONDS, Attached, Ends, Ticket, create_attached
from daemon.runtime.docker_destroy import destroy
from daemon.runtime.docker_engine import Engine
from daemon.runtime.docker_events import follow
from daemon.runtime.docker_late import LateSweeper
from daemon.runtime.docker_leftovers import Runsc, tidy
from daemon.runtime.docker_observe import cgroup_paths, observation
from daemon.runtime.errors import CreateFailed, ImageMissing, NoSuchSandbox, RuntimeTimeout
from daemon.runtime.port import Runtime, TaskCounter
from daemon.runtime.types import (
    LABEL_INSTANCE,
    CgroupPaths,
    Created,
    Observation,
    RuntimeEvent,
    RuntimeVersion,
    SandboxSpec,
)
from daemon.supervisor.docker_transport import DockerAttachTransport
from daemon.supervisor.transport import ByteTransport
from daemon.telemetry.pids import CgroupPids, RunscPids

T = TypeVar("T")
DEFAULT_SOCKET = Path("/var/run/docker.sock")
DEFAULT_RUNSC_ROOT = Path("/var/run/docker/runtime-runc/moby")
PANIC_LOG_LIMIT = 64 * 1024


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds each kind of call may take."""

    create: float = 30.0
    destroy: float = 30.0
    quick: float = 10.0
    close: float = 5.0


class DockerRuntime(Runtime):
    """Sandboxes as containers of one Docker engine, reached by its unix socket."""

    def __init__(
        self,
        socket_path: Path = DEFAULT_SOCKET,
        *,
        runtime: str = "gauntlet-runsc",
        runsc_root: Path = DEFAULT_RUNSC_ROOT,
        deadlines: Deadlines | None = None,
    ) -> None:
        """Connect to nothing yet.

        `runtime` is the registered runsc whose program and panic log are asked of the engine; `runsc_root` is
        `<exec-root>/runtime-runc/moby` of that engine, where runsc keeps its state.
        """
        self._socket_path = str(socket_path)
        self._runtime = runtime
        self._runsc_root = runsc_root
        self._runsc: Runsc | None = None
        self._deadlines = deadlines or Deadlines()
        self._engine = Engine(self._socket_path)
        self._late = LateSweeper(self._destroy_if_there)

    async def create(self, spec: SandboxSpec) -> Created:
        """See the port."""
        loop = asyncio.get_running_loop()
        ticket = Ticket()

        def late(name: str) -> None:
            loop.call_soon_threadsafe(self._late.add, name)

        ends = Ends(late, lambda client, failed: tidy(failed, self._registered_runsc(client), failed_start=True))
        future = self._engine.submit(
            lambda client: create_attached(client, self._socket_path, spec, ticket, ends), slow=True
        )
        try:
            async with asyncio.timeout(self._deadlines.create):
                attached = await asyncio.wrap_future(future)
        except BaseException as error:
            if not ticket.give_up():  # it succeeded in this very moment
                future.add_done_callback(lambda done: loop.call_soon_threadsafe(self._unwanted, done.result()))
            if isinstance(error, TimeoutError):
                raise RuntimeTimeout(f"create {spec.name}", self._deadlines.create) from None
            raise
        try:
            return Created(attached.container_id, await DockerAttachTransport.over(attached.sock))
        except BaseException:
            self._unwanted(attached)
            raise

    def _unwanted(self, attached: Attached) -> None:
        attached.sock.close()
        self._late.add(attached.container_id)

    async def attach(self, container_id: str) -> ByteTransport:
        """See the port."""

        def work(client: docker.APIClient) -> socket.socket:
            if not _inspect(client, container_id)["State"]["Running"]:
                raise NoSuchSandbox(container_id, "it does not run")
            return attach_socket(self._socket_path, container_id, ATTACH_SECONDS)

        sock = await self._engine.call("attach", work, seconds=self._deadlines.quick, discard=lambda late: late.close())
        return await DockerAttachTransport.over(sock)

    async def rename(self, container_id: str, name: str) -> None:
        """See the port."""
        await self._quick("rename", lambda client: client.rename(container_id, name), container_id)

    async def kill(self, container_id: str, signal: str = "SIGKILL") -> None:
        """See the port."""
        try:
            await self._quick("kill", lambda client: client.kill(container_id, signal), container_id)
        except CreateFailed as error:  # 409 in the engine's words: it does not run
            raise NoSuchSandbox(container_id, error.reason) from error

    async def destroy(self, container_id: str) -> None:
        """See the port."""
        seconds = self._deadlines.destroy
        deadline = time.monotonic() + seconds
        await self._engine.call(
            f"destroy {container_id[:12]}",
            lambda client: destroy(client, container_id, self._registered_runsc(client), deadline),
            seconds=seconds + 1,
            slow=True,
        )

    async def _destroy_if_there(self, name: str) -> bool:
        seen = await self.inspect(name)
        if seen is None:
            return False
        await self.destroy(seen.container_id)
        return True

    async def inspect(self, container_id: str) -> Observation | None:
        """See the port."""
        try:
            look = await self._quick("inspect", lambda client: _inspect(client, container_id), container_id)
        except NoSuchSandbox:
            return None
        return observation(look)

    async def list(self, instance: str) -> tuple[Observation, ...]:
        """See the port."""

        def work(client: docker.APIClient) -> tuple[Observation, ...]:
            found = []
            for row in client.containers(all=True, filters={"label": f"{LABEL_INSTANCE}={instance}"}):
                try:
                    found.append(observation(client.inspect_container(row["Id"])))
                except docker.errors.NotFound:
                    continue  # removed between the two looks
            return tuple(found)

        return await self._engine.call("list", work, seconds=self._deadlines.quick * 3)

    def events(self, instance: str) -> AsyncIterator[RuntimeEvent]:
        """See the port."""
        return follow(self._socket_path, instance, lambda: self.list(instance))

    async def panic_log(self, container_id: str) -> bytes:
        """See the port."""

        def work(client: docker.APIClient) -> bytes:
            runsc = self._registered_runsc(client)
            pieces = []
            for path in runsc.panic_files(container_id) if runsc is not None else ():
                with path.open("rb") as file:
                    pieces.append(file.read(PANIC_LOG_LIMIT))
            return b"".join(pieces)[:PANIC_LOG_LIMIT]

        return await self._quick("panic log", work, container_id)

    def _registered_runsc(self, client: docker.APIClient) -> Runsc | None:
        """Blocking at first; None when the engine has no such runtime. Later registrations are seen."""
        if self._runsc is None:
            registered = (client.info().get("Runtimes") or {}).get(self._runtime)
            if registered is not None:
                self._runsc = Runsc.registered(registered, self._runsc_root)
        return self._runsc

    async def cgroup(self, container_id: str) -> CgroupPaths:
        """See the port."""

        def work(client: docker.APIClient) -> CgroupPaths:
            return _groups(_inspect(client, container_id))

        return await self._quick("cgroup", work, container_id)

    async def task_counter(self, container_id: str) -> TaskCounter:
        """See the port. Under gVisor the control group counts the sentry's host threads, so the sentry is asked."""

        def work(client: docker.APIClient) -> TaskCounter:
            found = _inspect(client, container_id)
            if not found["State"]["Pid"]:
                raise NoSuchSandbox(container_id, "it does not run")
            runsc = self._registered_runsc(client)
            if runsc is not None and found["HostConfig"]["Runtime"] == self._runtime:
                return RunscPids(runsc.program, runsc.root, found["Id"])
            group = _groups(found).pids
            if group is None:
                raise CreateFailed("this machine has no pids controller")
            return CgroupPids(group)

        return await self._quick("task counter", work, container_id)

    async def image_digest(self, reference: str) -> str:
        """See the port."""
        try:
            return await self._quick("image", lambda client: _image_id(client, reference), "")
        except (ImageMissing, NoSuchSandbox) as error:
            raise ImageMissing(reference) from error

    async def ping(self) -> None:
        """See the port."""
        await self._quick("ping", lambda client: client.ping(), "")

    async def version(self) -> RuntimeVersion:
        """See the port."""

        def work(client: docker.APIClient) -> RuntimeVersion:
            runtimes = tuple(sorted(client.info().get("Runtimes") or {}))
            return RuntimeVersion(client.version()["Version"], client.api_version, runtimes)

        return await self._quick("version", work, "")

    async def close(self) -> None:
        """See the port."""
        await self._late.close()
        await self._engine.close(self._deadlines.close)

    async def _quick(self, name: str, work: Callable[[docker.APIClient], T], container_id: str) -> T:
        try:
            return await self._engine.call(name, work, seconds=self._deadlines.quick)
        except NoSuchSandbox as error:
            raise NoSuchSandbox(container_id, error.detail) from error


def _inspect(client: docker.APIClient, container_id: str) -> dict[str, Any]:
    found: dict[str, Any] = client.inspect_container(container_id)
    return found


def _groups(found: Mapping[str, Any]) -> CgroupPaths:
    """The control groups of an inspected container. Raises NoSuchSandbox."""
    pid = found["State"]["Pid"]
    if not pid:
        raise NoSuchSandbox(found["Id"], "it does not run")
    try:
        return cgroup_paths(pid, found["Id"])
    except OSError as error:
        raise NoSuchSandbox(found["Id"], "it ended just now") from error


def _image_id(client: docker.APIClient, reference: str) -> str:
    return str(client.inspect_image(reference)["Id"])  # type: ignore[no-untyped-call]
