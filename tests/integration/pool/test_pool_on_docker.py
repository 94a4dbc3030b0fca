"""Warm pools with everything real: Docker, runsc, quota file systems, supervisors."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from daemon.pool.claim import Acquired, acquire
from daemon.pool.clock import SystemClock
from daemon.pool.entry import PoolEntry
from daemon.pool.manager import PoolManager
from daemon.pool.sandboxes import SandboxFactory, SandboxSettings
from daemon.pool.template import Template, profile_digest
from daemon.runtime.docker import DEFAULT_RUNSC_ROOT, DEFAULT_SOCKET
from daemon.supervisor.types import ExecSpec
from tests.support.pools import eventually
from tests.support.runtime_rig import RESOURCES, SECCOMP_PROFILE, DockerPlace, DockerRig
from tests.support.workspaces import Host

pytestmark = [pytest.mark.docker, pytest.mark.slow]
READY_SECONDS = 60


class Node:
    """Everything a pool needs, on this machine."""

    def __init__(self, directory: Path) -> None:
        self.rig = DockerRig(DockerPlace(DEFAULT_SOCKET, DEFAULT_RUNSC_ROOT, "gauntlet-runsc"))
        self.host = Host(directory)
        profile = SECCOMP_PROFILE.read_text()
        self.template = Template(
            stack="mini",
            image_digest=self.rig.image,
            resources=RESOURCES,
            profile_digest=profile_digest(profile),
            runtime="gauntlet-runsc",
            runtime_digest="sha256:test",
        )
        settings = SandboxSettings(
            self.rig.instance, {self.template.profile_digest: profile}, extra_mounts=self.rig.spec().mounts
        )
        self.factory = SandboxFactory(self.rig.runtime, self.host.manager, SystemClock(), settings)
        self.pools = PoolManager(self.factory, SystemClock())

    async def ready(self, count: int) -> None:
        await eventually(lambda: sum(one.ready for one in self.pools.status()) == count, READY_SECONDS)

    async def use(self, entry: PoolEntry) -> str:
        """What an attempt does with it first: assign, then read its own briefing and write beside it."""
        entry.slot = await self.host.manager.assign(entry.slot, self.host.digest)
        await entry.link.assign({"MARK": entry.entry_id})
        script = 'cat challenge/briefing.md && echo "$MARK" > challenge/mark && hostname && id -u'
        async with asyncio.timeout(READY_SECONDS):
            handle = await entry.link.exec(ExecSpec(argv=["/bin/sh", "-c", script]), exec_id="first")
            result = await handle.wait()
        assert result.exit_code == 0, handle.head
        return handle.head.decode()

    async def release(self, got: Acquired[str]) -> None:
        await self.factory.destroy(got.entry)
        self.pools.gone(got.entry.entry_id)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    # The slots are reached by uid 1000 from inside, whatever the mode of pytest's own directory is.
    node = Node(tmp_path)
    await node.host.manager.start()
    await node.host.manager.add_template(node.host.package, node.host.digest)
    try:
        yield node
        assert await node.pools.close() == 0
        assert await node.rig.runtime.list(node.rig.instance) == ()
    finally:
        await node.rig.close()
        await node.host.manager.reclaim(frozenset())
        await node.host.manager.close()
        await node.host.nothing_left()
        node.host.executor.shutdown()


async def test_warm_and_cold_claims_see_the_same(node: Node) -> None:
    node.pools.set_target(node.template, 2)
    await node.ready(2)
    warm = await acquire(node.pools, node.template, node.use)
    node.pools.set_target(node.template, 0)
    await eventually(lambda: node.pools.held() == 1, READY_SECONDS)
    cold = await acquire(node.pools, node.template, node.use)
    assert (warm.launch_type, cold.launch_type) == ("WARM", "COLD")
    assert warm.result == cold.result == "Fix it.\nsandbox\n1000\n"
    assert (warm.entry.slot.upper / "challenge" / "mark").exists() or list(warm.entry.slot.upper.rglob("mark"))
    await node.release(warm)
    await node.release(cold)


async def test_idle_death_is_replaced(node: Node) -> None:
    node.pools.set_target(node.template, 1)
    await node.ready(1)
    (entry,) = (one for pool in node.pools._pools.values() for one in pool.idle)
    async with aclosing(node.rig.runtime.events(node.rig.instance)) as events:
        node.pools.observe(await anext(events))
        sentry = (await node.rig.runtime.cgroup(entry.container_id)).host_pids
        for pid in sentry:
            os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(READY_SECONDS):
            async for event in events:
                node.pools.observe(event)
                if event.container_id == entry.container_id:
                    break
    assert not entry.alive
    await node.ready(1)
    got = await acquire(node.pools, node.template, node.use)
    assert got.entry is not entry
    await node.release(got)


async def test_failing_template_leaves_nothing_and_harms_no_other(node: Node) -> None:
    broken = Template(
        stack="broken",
        image_digest="sha256:" + "e" * 64,
        resources=RESOURCES,
        profile_digest=node.template.profile_digest,
        runtime="gauntlet-runsc",
        runtime_digest="sha256:test",
    )
    node.pools.set_target(broken, 3)
    node.pools.set_target(node.template, 1)
    await node.ready(1)
    await eventually(lambda: node.pools.status()[0].breaker_open, READY_SECONDS)
    status = node.pools.status()[0]
    assert "is not on this node" in status.last_error
    assert (status.ready, status.creating) == (0, 0)
    node.pools.set_target(broken, 0)


async def test_claims_at_once_never_share(node: Node) -> None:
    node.pools.set_target(node.template, 2)
    await node.ready(2)
    got = await asyncio.gather(*(acquire(node.pools, node.template, node.use) for _ in range(4)))
    assert sorted(one.launch_type for one in got) == ["COLD", "COLD", "WARM", "WARM"]
    assert len({one.entry.container_id for one in got}) == 4
    await asyncio.gather(*(node.release(one) for one in got))
