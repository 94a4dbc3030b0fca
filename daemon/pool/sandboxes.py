"""The real entry factory: a slot of the workspace room, a container of the runtime, a supervisor that is READY."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from daemon.pool.clock import Clock
from daemon.pool.entry import PoolEntry
from daemon.pool.factory import EntryFactory, EntryFailed
from daemon.pool.launch import READY_SECONDS, Confirm, Launched, NotReady, burial_of, launch
from daemon.pool.template import Template
from daemon.pool.undertaker import Undertaker
from daemon.runtime.errors import RuntimeFault
from daemon.runtime.port import Runtime
from daemon.runtime.types import Mount, SandboxSpec
from daemon.workspace.model import Slot, WorkspaceError
from daemon.workspace.port import Workspace

WORKSPACE = "/workspace"


@dataclass(frozen=True)
class SandboxSettings:
    """What all entries of a node share.

    `profiles` holds seccomp profiles (JSON text) by `template.profile_digest`; `extra_mounts` serve development images
    without a supervisor of their own. `create_seconds` bounds slot, container and READY together.
    """

    instance: str
    profiles: Mapping[str, str]
    extra_mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    create_seconds: float = 60.0
    ready_seconds: float = READY_SECONDS


class SandboxFactory(EntryFactory):
    """Makes entries on this node."""

    def __init__(
        self,
        runtime: Runtime,
        workspace: Workspace,
        clock: Clock,
        settings: SandboxSettings,
        *,
        confirm: Confirm | None = None,
    ) -> None:
        """`confirm` is awaited before an entry counts as READY (the sentry's trace was seen)."""
        self._runtime = runtime
        self._workspace = workspace
        self._clock = clock
        self._settings = settings
        self._confirm = confirm
        self._undertaker = Undertaker(clock)

    async def create(self, template: Template) -> PoolEntry:
        """See the port."""
        entry_id = f"sbx_{secrets.token_hex(10)}"
        profile = self._settings.profiles.get(template.profile_digest)
        if profile is None:
            raise EntryFailed("template", f"no seccomp profile of digest {template.profile_digest} on this node")
        try:
            async with asyncio.timeout(self._settings.create_seconds):
                slot = await self._prepare_slot(entry_id, template.resources.disk_bytes)
                launched = await self._launch(self._spec(template, entry_id, slot, profile), slot)
        except TimeoutError:
            raise EntryFailed("container", f"not ready within {self._settings.create_seconds:g} s") from None
        return PoolEntry(
            entry_id=entry_id,
            template=template,
            container_id=launched.container_id,
            link=launched.link,
            slot=slot,
            created=self._clock.monotonic(),
            image_digest=template.image_digest,
            transport=launched.transport,
        )

    def _spec(self, template: Template, entry_id: str, slot: Slot, profile: str) -> SandboxSpec:
        return SandboxSpec(
            name=f"{self._settings.instance}-{entry_id}",
            instance=self._settings.instance,
            entry_id=entry_id,
            template=template.key,
            image=template.image_digest,
            runtime=template.runtime,
            resources=template.resources,
            seccomp_profile=profile,
            mounts=(Mount(slot.workspace, WORKSPACE, propagation="rslave"), *self._settings.extra_mounts),
            environment=self._settings.environment,
        )

    async def _prepare_slot(self, entry_id: str, disk_bytes: int) -> Slot:
        # A thread that mounts cannot be cancelled: a slot that comes too late is destroyed when it comes.
        making = asyncio.ensure_future(self._workspace.prepare_slot(entry_id, disk_bytes))
        try:
            return await asyncio.shield(making)
        except WorkspaceError as error:
            raise EntryFailed("slot", str(error)) from error
        except asyncio.CancelledError:
            self._undertaker.bury(f"slot {entry_id}", lambda: self._drop_slot(making))
            raise

    async def _drop_slot(self, making: asyncio.Future[Slot]) -> None:
        await asyncio.wait({making})
        if not making.cancelled() and making.exception() is None:
            await self._workspace.destroy(making.result())

    async def _launch(self, spec: SandboxSpec, slot: Slot) -> Launched:
        try:
            return await launch(
                self._runtime,
                spec,
                self._undertaker,
                confirm=self._confirm,
                ready_seconds=self._settings.ready_seconds,
            )
        except BaseException as error:
            burial = self._undertaker.bury(f"slot {slot.entry_id}", lambda: self._drop_after(burial_of(spec), slot))
            if isinstance(error, asyncio.CancelledError):
                raise
            await asyncio.wait({burial}, timeout=self._settings.ready_seconds)
            if isinstance(error, NotReady):
                raise EntryFailed("ready", str(error)) from error
            if isinstance(error, RuntimeFault):
                raise EntryFailed("container", str(error)) from error
            raise

    async def _drop_after(self, container: str, slot: Slot) -> None:
        await self._undertaker.gone(container)  # a slot outlives whatever may still write in it
        await self._workspace.destroy(slot)

    async def destroy(self, entry: PoolEntry) -> None:
        """See the port."""
        await entry.link.close()
        await entry.transport.close()
        await self._runtime.destroy(entry.container_id)
        await self._workspace.destroy(entry.slot)

    async def close(self, seconds: float) -> int:
        """See the port."""
        return await self._undertaker.close(seconds)
