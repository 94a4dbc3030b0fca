"""dockerd killed and restarted under the runtime: on private engines, so that nobody else notices."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing

import pytest

from daemon.runtime.errors import RuntimeFault, RuntimeUnavailable
from daemon.runtime.types import ContainerState, EventKind
from daemon.supervisor.link import SupervisorLink
from tests.support.engines import FLAVOURS, Flavour, running_engine
from tests.support.restartable import Restartable
from tests.support.runtime_contract import LIVENESS_SECONDS, expect, until
from tests.support.runtime_rig import DockerPlace, DockerRig

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.fixture(params=FLAVOURS)
def docker_engine(request: pytest.FixtureRequest) -> Iterator[Restartable]:
    flavour: Flavour = request.param
    with running_engine(flavour) as engine:
        restartable = Restartable(engine)
        yield restartable
        restartable.end()


@pytest.fixture
async def rig(docker_engine: Restartable) -> AsyncIterator[DockerRig]:
    engine = docker_engine.engine
    rig = DockerRig(DockerPlace(engine.socket, engine.runtime_root, "gauntlet-runsc"))
    yield rig
    await rig.close()


async def answers(rig: DockerRig) -> bool:
    try:
        await rig.runtime.ping()
    except RuntimeFault:
        return False
    return True


async def test_what_ended_during_an_outage_is_learnt_after_it(docker_engine: Restartable, rig: DockerRig) -> None:
    created = await rig.create(rig.spec())
    async with aclosing(rig.runtime.events(rig.instance)) as events:
        first = await expect(events, lambda event: event.kind is EventKind.RESYNC)
        assert [seen.state for seen in first[-1].observations] == [ContainerState.RUNNING]
        docker_engine.kill()
        with pytest.raises(RuntimeUnavailable):
            await rig.runtime.ping()
        with pytest.raises(RuntimeUnavailable):
            await rig.runtime.create(rig.spec())
        with pytest.raises(RuntimeUnavailable):
            await rig.runtime.inspect(created.container_id)
        docker_engine.start()  # without live-restore it ends the sandboxes that it finds
        told = await expect(events, lambda event: event.kind is EventKind.RESYNC)
        seen = {one.container_id: one for one in told[-1].observations}
        if seen[created.container_id].state.live:
            await expect(events, lambda event: event.container_id == created.container_id)
        await until(lambda: answers(rig))
        mortal = await rig.mortal(4)
        await rig.trigger(mortal)
        told = await expect(events, lambda event: event.container_id == mortal.container_id)
        assert told[-1].exit_code == 4
    await rig.runtime.destroy(created.container_id)
    await rig.runtime.destroy(mortal.container_id)
    assert await rig.runtime.list(rig.instance) == ()


async def test_sandbox_outlives_an_engine_with_live_restore(docker_engine: Restartable, rig: DockerRig) -> None:
    docker_engine.kill()
    docker_engine.start(live_restore=True)
    await until(lambda: answers(rig))
    created = await rig.create(rig.spec())
    link = SupervisorLink(created.transport)
    before = await link.connect()
    docker_engine.kill()
    async with asyncio.timeout(LIVENESS_SECONDS):
        await link.gone()
    await link.close()
    docker_engine.start(live_restore=True)
    await until(lambda: answers(rig))
    again = SupervisorLink(await rig.runtime.attach(created.container_id), fresh=False)
    async with asyncio.timeout(LIVENESS_SECONDS):
        after = await again.connect()
    assert after.boot_id == before.boot_id
    await again.close()


async def test_create_under_a_dying_engine_leaves_nothing(docker_engine: Restartable, rig: DockerRig) -> None:
    under_way = rig.slow_create()
    creating = asyncio.create_task(rig.runtime.create(rig.spec()))
    await until(under_way)
    docker_engine.kill()
    with pytest.raises(RuntimeFault):
        await creating
    docker_engine.start()
    await until(lambda: answers(rig))

    async def nothing() -> bool:
        return await rig.runtime.list(rig.instance) == ()

    await until(nothing)
