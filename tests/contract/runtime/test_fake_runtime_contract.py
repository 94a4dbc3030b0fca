from collections.abc import AsyncIterator

import pytest

from daemon.runtime.errors import RuntimeUnavailable
from daemon.runtime.types import EventKind
from tests.support.runtime_contract import RuntimeContract, expect
from tests.support.runtime_rig import FakeRig


class TestFakeRuntime(RuntimeContract):
    @pytest.fixture
    async def rig(self) -> AsyncIterator[FakeRig]:
        rig = FakeRig()
        yield rig
        await rig.close()

    async def test_outage_of_the_engine(self, rig: FakeRig) -> None:
        events = rig.runtime.events(rig.instance)
        mortal = await rig.mortal(5)
        await expect(events, lambda event: event.kind is EventKind.RESYNC)
        rig.fake.engine_down()
        with pytest.raises(RuntimeUnavailable):
            await rig.runtime.ping()
        await rig.trigger(mortal)
        rig.fake.engine_up()
        told = await expect(events, lambda event: event.kind is EventKind.RESYNC)
        assert [(seen.container_id, seen.exit_code) for seen in told[-1].observations] == [(mortal.container_id, 5)]
        await events.aclose()

    async def test_panic_log_is_what_the_script_says(self, rig: FakeRig) -> None:
        mortal = await rig.mortal(2)
        rig.fake.die(mortal.container_id, 2, panic=b"panic: boom")
        assert await rig.runtime.panic_log(mortal.container_id) == b"panic: boom"
