"""The contract of the port `runtime`: every adapter's test class inherits these tests and provides a `rig`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import pytest

from daemon.runtime.errors import CreateFailed, ImageMissing, NoSuchSandbox, RuntimeTimeout
from daemon.runtime.types import LABEL_ENTRY, ContainerState, EventKind, RuntimeEvent
from daemon.supervisor.errors import SupervisorGone
from daemon.supervisor.link import SupervisorLink
from daemon.supervisor.types import ExecSpec
from tests.support.runtime_rig import Rig

LIVENESS_SECONDS = 30


async def expect(events: AsyncIterator[RuntimeEvent], wanted: Callable[[RuntimeEvent], bool]) -> list[RuntimeEvent]:
    """Read until `wanted`; everything read, the wanted one last."""
    seen = []
    async with asyncio.timeout(LIVENESS_SECONDS):
        async for event in events:
            seen.append(event)
            if wanted(event):
                return seen
    raise AssertionError(f"the stream ended after {seen}")


async def until(condition: Callable[[], object]) -> None:
    """Poll something nobody announces."""
    async with asyncio.timeout(LIVENESS_SECONDS):
        while True:
            answer = condition()
            if asyncio.iscoroutine(answer):
                answer = await answer
            if answer:
                return
            await asyncio.sleep(0.02)


class RuntimeContract:
    """Tests that hold for every adapter."""

    async def test_created_sandbox_has_a_ready_supervisor(self, rig: Rig) -> None:
        created = await rig.create(rig.spec())
        link = SupervisorLink(created.transport)
        async with asyncio.timeout(LIVENESS_SECONDS):
            info = await link.connect()
            assert info.assigned is None
            assert await link.ping() > 0
            await link.assign({"MARK": "7"})
            result = await (await link.exec(ExecSpec(argv=["true"]), exec_id="e1")).wait()
        assert result.exit_code == 0
        await link.close()

    async def test_what_is_seen_of_a_sandbox(self, rig: Rig) -> None:
        spec = rig.spec()
        created = await rig.create(spec)
        seen = await rig.runtime.inspect(created.container_id)
        assert seen is not None
        assert seen.state is ContainerState.RUNNING
        assert seen.name == spec.name
        assert {key: seen.labels[key] for key in spec.labels} == spec.labels
        assert seen.image_digest == rig.image
        assert (seen.exit_code, seen.oom_killed, seen.finished_at_ns) == (None, False, None)
        assert seen.started_at_ns is not None
        assert await rig.runtime.inspect(spec.name) == seen

    async def test_unknown_container(self, rig: Rig) -> None:
        unknown = "f" * 64
        assert await rig.runtime.inspect(unknown) is None
        await rig.runtime.destroy(unknown)
        assert await rig.runtime.panic_log(unknown) == b""
        with pytest.raises(NoSuchSandbox):
            await rig.runtime.attach(unknown)
        with pytest.raises(NoSuchSandbox):
            await rig.runtime.kill(unknown)
        with pytest.raises(NoSuchSandbox):
            await rig.runtime.rename(unknown, "whatever")
        with pytest.raises(NoSuchSandbox):
            await rig.runtime.cgroup(unknown)

    async def test_supervisor_outlives_its_daemon(self, rig: Rig) -> None:
        created = await rig.create(rig.spec())
        link = SupervisorLink(created.transport)
        first = await link.connect()
        await link.assign({"MARK": "7"})
        handle = await link.exec(ExecSpec(argv=["cat"], stdin=True), exec_id="long")
        await link.close()
        with pytest.raises(SupervisorGone):
            await handle.wait()

        again = rig.again()
        later = SupervisorLink(await again.attach(created.container_id), fresh=False)
        async with asyncio.timeout(LIVENESS_SECONDS):
            second = await later.connect()
            assert second.boot_id == first.boot_id
            assert second.assigned is not None
            assert [one.exec_id for one in second.execs if one.result is None] == ["long"]
            adopted = later.execs["long"]
            await later.write_stdin("long", 0, b"still here", eof=True)
            result = await adopted.wait()
        assert (result.exit_code, result.stdout_total) == (0, 10)
        await later.close()
        if again is not rig.runtime:
            await again.close()

    async def test_kill_ends_the_sandbox_and_its_stream(self, rig: Rig) -> None:
        created = await rig.create(rig.spec())
        link = SupervisorLink(created.transport)
        await link.connect()
        await rig.runtime.kill(created.container_id)
        async with asyncio.timeout(LIVENESS_SECONDS):
            await link.gone()
        await until(lambda: self._state(rig, created.container_id, ContainerState.EXITED))
        seen = await rig.runtime.inspect(created.container_id)
        assert seen is not None
        assert seen.exit_code == 137
        assert not seen.oom_killed
        assert seen.finished_at_ns is not None
        with pytest.raises(NoSuchSandbox):
            await rig.runtime.kill(created.container_id)
        with pytest.raises(NoSuchSandbox):
            await rig.runtime.attach(created.container_id)
        await link.close()

    @staticmethod
    async def _state(rig: Rig, container_id: str, state: ContainerState) -> bool:
        seen = await rig.runtime.inspect(container_id)
        return seen is not None and seen.state is state

    async def test_destroy_is_idempotent_and_final(self, rig: Rig) -> None:
        created = await rig.create(rig.spec())
        count = await (await rig.runtime.task_counter(created.container_id))()
        assert count is not None
        # The supervisor's threads; under gVisor a count of host tasks would show the sentry's thirty and more.
        assert 1 <= count <= 20
        paths = await rig.runtime.cgroup(created.container_id)
        await asyncio.gather(*(rig.runtime.destroy(created.container_id) for _ in range(3)))
        await rig.runtime.destroy(created.container_id)
        assert await rig.runtime.inspect(created.container_id) is None
        assert await rig.runtime.list(rig.instance) == ()
        for pid in paths.host_pids:
            assert not process_runs(pid), f"host process {pid} outlived its sandbox"

    async def test_list_shows_only_the_own_instance(self, rig: Rig) -> None:
        mine = await rig.create(rig.spec())
        other_instance = f"{rig.instance}-other"
        other = await rig.create(rig.spec(instance=other_instance))
        assert [seen.container_id for seen in await rig.runtime.list(rig.instance)] == [mine.container_id]
        assert [seen.container_id for seen in await rig.runtime.list(other_instance)] == [other.container_id]
        await rig.runtime.destroy(other.container_id)

    async def test_events_begin_with_the_truth_and_tell_ends(self, rig: Rig) -> None:
        before = await rig.mortal(3)
        async with aclosing(rig.runtime.events(rig.instance)) as events:
            first = await expect(events, lambda event: event.kind is EventKind.RESYNC)
            assert len(first) == 1
            assert [seen.container_id for seen in first[0].observations] == [before.container_id]
            stranger = await rig.create(rig.spec(instance=f"{rig.instance}-other"))
            await rig.runtime.destroy(stranger.container_id)
            await rig.trigger(before)
            told = await expect(events, lambda event: event.kind is EventKind.DIE)
        assert [event.container_id for event in told if event.kind is not EventKind.RESYNC] == [before.container_id]
        assert told[-1].exit_code == 3
        assert told[-1].time_ns > 0
        assert told[-1].labels[LABEL_ENTRY]

    async def test_events_tell_out_of_memory_before_the_end(self, rig: Rig) -> None:
        glutton = await rig.glutton()
        async with aclosing(rig.runtime.events(rig.instance)) as events:
            await expect(events, lambda event: event.kind is EventKind.RESYNC)
            await rig.trigger(glutton)
            told = await expect(events, lambda event: event.kind is EventKind.DIE)
        kinds = [event.kind for event in told if event.kind is not EventKind.RESYNC]
        assert EventKind.OOM in kinds[:-1]
        assert told[-1].exit_code == 137
        seen = await rig.runtime.inspect(glutton.container_id)
        assert seen is not None
        assert seen.oom_killed

    async def test_two_readers_of_events(self, rig: Rig) -> None:
        mortal = await rig.mortal(0)
        async with (
            aclosing(rig.runtime.events(rig.instance)) as one,
            aclosing(rig.runtime.events(rig.instance)) as two,
        ):
            await expect(one, lambda event: event.kind is EventKind.RESYNC)
            await expect(two, lambda event: event.kind is EventKind.RESYNC)
            await rig.trigger(mortal)
            await expect(one, lambda event: event.kind is EventKind.DIE)
            await expect(two, lambda event: event.kind is EventKind.DIE)

    async def test_failed_start_leaves_nothing(self, rig: Rig) -> None:
        with pytest.raises(CreateFailed):
            await rig.create(rig.spec(command=("/no/such/program",)))
        assert await rig.runtime.list(rig.instance) == ()

    async def test_missing_image(self, rig: Rig) -> None:
        with pytest.raises(ImageMissing):
            await rig.create(rig.spec(image="sha256:" + "e" * 64))
        with pytest.raises(ImageMissing):
            await rig.runtime.image_digest("gauntlet-sandbox:no-such-tag")
        assert await rig.runtime.list(rig.instance) == ()
        assert await rig.runtime.image_digest(rig.image) == rig.image

    async def test_taken_name_is_refused_and_its_holder_lives(self, rig: Rig) -> None:
        spec = rig.spec()
        created = await rig.create(spec)
        with pytest.raises(CreateFailed):
            await rig.create(rig.spec(name=spec.name))
        assert [seen.container_id for seen in await rig.runtime.list(rig.instance)] == [created.container_id]
        seen = await rig.runtime.inspect(created.container_id)
        assert seen is not None
        assert seen.state is ContainerState.RUNNING

    async def test_rename_keeps_the_sandbox(self, rig: Rig) -> None:
        spec = rig.spec()
        created = await rig.create(spec)
        name = f"{rig.instance}-att_1"
        await rig.runtime.rename(created.container_id, name)
        seen = await rig.runtime.inspect(created.container_id)
        assert seen is not None
        assert (seen.name, seen.state) == (name, ContainerState.RUNNING)
        assert await rig.runtime.inspect(spec.name) is None
        other = await rig.create(rig.spec())
        with pytest.raises(CreateFailed):
            await rig.runtime.rename(other.container_id, name)

    async def test_late_answer_is_destroyed_on_arrival(self, rig: Rig) -> None:
        impatient = rig.impatient()
        with pytest.raises(RuntimeTimeout):
            await impatient.create(rig.spec())
        await until(lambda: self._made_and_destroyed(rig, 1))
        assert await rig.runtime.list(rig.instance) == ()
        if impatient is not rig.runtime:
            await impatient.close()

    async def test_cancelled_create_leaves_nothing(self, rig: Rig) -> None:
        under_way = rig.slow_create()
        creating = asyncio.create_task(rig.create(rig.spec()))
        await until(under_way)
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
        await until(lambda: self._settled(rig))
        assert await rig.runtime.list(rig.instance) == ()

    @staticmethod
    async def _made_and_destroyed(rig: Rig, count: int) -> bool:
        return await rig.made_and_destroyed() == (count, count)

    @staticmethod
    async def _settled(rig: Rig) -> bool:
        made, destroyed = await rig.made_and_destroyed()
        return made == destroyed and made > 0

    async def test_no_panic_no_panic_log(self, rig: Rig) -> None:
        mortal = await rig.mortal(2)
        await rig.trigger(mortal)
        await until(lambda: self._state(rig, mortal.container_id, ContainerState.EXITED))
        assert await rig.runtime.panic_log(mortal.container_id) == b""

    async def test_engine_answers(self, rig: Rig) -> None:
        await rig.runtime.ping()
        version = await rig.runtime.version()
        assert version.engine
        assert version.api
        assert rig.spec().runtime in version.runtimes


def process_runs(pid: int) -> bool:
    """A live process of this host; a zombie is none."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
