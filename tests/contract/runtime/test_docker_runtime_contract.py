"""The contract on real engines, with runsc and runc, and what only a real container can show."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from daemon.runtime.docker import DEFAULT_RUNSC_ROOT, DEFAULT_SOCKET
from daemon.runtime.docker_leftovers import orphans
from daemon.runtime.errors import CreateFailed
from daemon.runtime.types import ContainerState, Mount, SandboxSpec
from daemon.supervisor.errors import SupervisorGone
from daemon.supervisor.link import SupervisorLink
from daemon.supervisor.types import ExecSpec
from tests.support.engines import running_engine
from tests.support.runtime_contract import LIVENESS_SECONDS, RuntimeContract, until
from tests.support.runtime_rig import NO_SUCH_PROGRAM, RESOURCES, DockerPlace, DockerRig

pytestmark = pytest.mark.docker

# Each fact is printed by the agent's own shell; {root} runs as PID 1 does not: the agent has no capability at all.
FACTS = {
    "processes": ("ulimit -u", str(RESOURCES.pids)),
    "open files": ("ulimit -n", "1024"),
    "file size in blocks of 512": ("ulimit -f", str(RESOURCES.disk_bytes // 512)),
    "host name": ("hostname", "sandbox"),
    "user": ("id -u", "1000"),
    "effective capabilities": ("grep CapEff /proc/self/status | tr -d '[:space:]'", "CapEff:0000000000000000"),
    "bounding capabilities": ("grep CapBnd /proc/self/status | tr -d '[:space:]'", "CapBnd:00000000000000cb"),
    "root file system": ("touch /x 2>/dev/null && echo written || echo refused", "refused"),
    "network": ("awk 'NR > 2 { print $1 }' /proc/net/dev", "lo:"),
    "tmp": ("df -k /tmp | awk 'END {print $2}'", str(RESOURCES.tmp_bytes // 1024)),
    "tmp runs nothing": ("printf '#!/bin/sh\\n' > /tmp/p; chmod +x /tmp/p; /tmp/p 2>/dev/null; echo $?", "126"),
    "user namespaces (seccomp)": ("unshare -U true 2>/dev/null && echo made || echo refused", "refused"),
}
ENGINES = ("current", "debian")


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[tuple[Path, Path]]:
    """Socket and runsc's root of the machine's own engine, or of a private one of Debian's older release."""
    if request.param == "current":
        yield DEFAULT_SOCKET, DEFAULT_RUNSC_ROOT
    else:
        with running_engine("debian") as private:
            yield private.socket, private.runtime_root


class TestDockerRuntime(RuntimeContract):
    @pytest.fixture(params=["gauntlet-runsc", "runc"])
    async def rig(self, engine: tuple[Path, Path], request: pytest.FixtureRequest) -> AsyncIterator[DockerRig]:
        rig = DockerRig(DockerPlace(*engine, request.param))
        yield rig
        await rig.close()

    async def test_limits_are_visible_inside(self, rig: DockerRig) -> None:
        link = await self._assigned(rig, rig.spec())
        for name, (command, wanted) in FACTS.items():
            assert await shell(link, command) == wanted, name
        await link.close()

    async def test_limits_reach_the_cgroup(self, rig: DockerRig) -> None:
        created = await rig.create(rig.spec())
        paths = await rig.runtime.cgroup(created.container_id)
        assert paths.memory is not None
        assert paths.pids is not None
        assert paths.host_pids
        name = "memory.limit_in_bytes" if paths.version == 1 else "memory.max"
        assert int((paths.memory / name).read_text()) == RESOURCES.memory_bytes
        assert int((paths.pids / "pids.max").read_text()) == 4096

    async def test_mounts(self, rig: DockerRig, tmp_path: Path) -> None:
        writable, fixed = directories(tmp_path)
        mounts = (
            *rig.spec().mounts,
            Mount(writable, "/workspace"),
            Mount(fixed, "/scoring", read_only=True),
        )
        link = await self._assigned(rig, rig.spec(mounts=mounts))
        assert (
            await shell(link, "cat /scoring/file; touch /scoring/other 2>/dev/null; echo yes > /workspace/out")
            == "seen"
        )
        await link.close()
        assert {path.name for path in (*writable.iterdir(), *fixed.iterdir())} == {"out", "file"}

    async def test_failed_start_leaves_no_process_and_no_state(self, rig: DockerRig) -> None:
        # Debian's engine gives up on the task it failed to start, and its shim stays.
        with pytest.raises(CreateFailed):
            await rig.create(rig.spec(command=NO_SUCH_PROGRAM))
        (made, container_id), *_ = await rig.history()
        assert made == "create"
        assert list(rig.place.runsc_root.glob(f"*{container_id}*")) == []
        await until(lambda: not list(orphans(container_id)))

    async def test_nothing_of_runsc_is_left(self, rig: DockerRig) -> None:
        created = await rig.create(rig.spec())
        state = list(rig.place.runsc_root.glob(f"{created.container_id}*"))
        assert state, "the place of the runtime's state is wrong"
        await rig.runtime.destroy(created.container_id)
        assert list(rig.place.runsc_root.glob(f"{created.container_id}*")) == []

    @staticmethod
    async def _assigned(rig: DockerRig, spec: SandboxSpec) -> SupervisorLink:
        created = await rig.create(spec)
        link = SupervisorLink(created.transport)
        async with asyncio.timeout(LIVENESS_SECONDS):
            await link.connect()
            await link.assign({})
        return link


class TestRunscUnderDocker:
    """What only runsc has."""

    @pytest.fixture
    async def rig(self, engine: tuple[Path, Path]) -> AsyncIterator[DockerRig]:
        rig = DockerRig(DockerPlace(*engine, "gauntlet-runsc"))
        yield rig
        await rig.close()

    async def test_panic_of_the_sentry_is_told_from_an_exit(self, rig: DockerRig) -> None:
        created = await rig.create(rig.spec())
        link = SupervisorLink(created.transport)
        await link.connect()
        await link.assign({})
        await rig.starve_sentry(created.container_id)
        busy = ExecSpec(argv=["/bin/sh", "-c", "sleep 0.1 & sleep 0.1 & wait"])
        with pytest.raises(SupervisorGone):
            async with asyncio.timeout(LIVENESS_SECONDS):
                # A start may also just fail inside with EAGAIN: the sentry can borrow a thread that is idle.
                for batch in range(10_000):
                    starts = (link.exec(busy, exec_id=f"e{batch}-{number}") for number in range(8))
                    for handle in await asyncio.gather(*starts):
                        await handle.wait()
        await link.close()
        await until(lambda: RuntimeContract._state(rig, created.container_id, ContainerState.EXITED))
        seen = await rig.runtime.inspect(created.container_id)
        assert seen is not None
        assert seen.exit_code == 2
        assert b"goroutine" in await rig.runtime.panic_log(created.container_id)
        await rig.runtime.destroy(created.container_id)
        assert await rig.runtime.panic_log(created.container_id) == b""


def directories(place: Path) -> tuple[Path, Path]:
    """Two directories anyone may write in, reachable by anyone; the second holds a file."""
    made = place / "rw", place / "ro"
    for directory in made:
        directory.mkdir()
        directory.chmod(0o777)
    (made[1] / "file").write_text("seen")
    return made


async def shell(link: SupervisorLink, command: str) -> str:
    """Standard output of a command, stripped."""
    async with asyncio.timeout(LIVENESS_SECONDS):
        handle = await link.exec(ExecSpec(argv=["/bin/sh", "-c", command], cwd="/"), exec_id=f"e{hash(command)}")
        await handle.wait()
    return handle.head.decode().strip()
