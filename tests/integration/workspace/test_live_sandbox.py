"""A workspace seen from inside running containers, gVisor's and runc's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from daemon.runtime.docker import DEFAULT_RUNSC_ROOT, DEFAULT_SOCKET
from daemon.runtime.types import Created, Mount
from daemon.workspace import mountinfo
from daemon.workspace.model import JudgeKind, JudgeMounts, Slot
from formats.diff import read_lines
from tests.support.engines import running_engine
from tests.support.runtime_rig import DockerPlace, DockerRig
from tests.support.workspaces import DISK, Host

pytestmark = pytest.mark.docker

# PID 1 is a root shell that runs the lines it is given: a guest that has more rights than any agent will have.
SHELL = ("/bin/sh", "-c", 'while read -r line; do eval "$line" 2>&1; echo "=== end"; done')
AGENT = "su agent -s /bin/sh -c"
AGENTS_WORK = (
    "set -eu; cd /workspace/challenge; cat briefing.md; echo new > new; rm src/old.py; mv docs papers; rm -r tests; "
    "mkdir tests; "
    "echo mine > tests/mine; ln -s /etc/shadow shadow; ln new hard; chmod 700 src; echo >> src/app.py; "
    "echo evil > conftest.py; echo code > ../submissions/code/x"
)
EXPECTED = {
    "challenge/conftest.py": "modified",
    "challenge/docs": "deleted",
    "challenge/docs/a.md": "deleted",
    "challenge/docs/deep": "deleted",
    "challenge/docs/deep/b.md": "deleted",
    "challenge/hard": "added",
    "challenge/new": "added",
    "challenge/papers": "added",
    "challenge/papers/a.md": "added",
    "challenge/papers/deep": "added",
    "challenge/papers/deep/b.md": "added",
    "challenge/shadow": "added",
    "challenge/src": "modified",
    "challenge/src/app.py": "modified",
    "challenge/src/old.py": "deleted",
    "challenge/tests/data": "deleted",
    "challenge/tests/data/one.txt": "deleted",
    "challenge/tests/mine": "added",
    "challenge/tests/test_app.py": "deleted",
    "submissions/code/x": "added",
}


class Guest:
    """A container with a root shell as PID 1."""

    def __init__(self, created: Created) -> None:
        self.created = created

    async def run(self, line: str) -> str:
        """Run one line; what it printed on both streams."""
        await self.created.transport.write(line.encode() + b"\n")
        output = b""
        async with asyncio.timeout(60):
            while b"=== end\n" not in output:
                piece = await self.created.transport.read(1 << 16)
                assert piece, f"the guest is gone: {output!r}"
                output += piece
        return output.decode().replace("=== end\n", "")


@pytest.fixture(scope="module", params=["current", "debian"])
def engine(request: pytest.FixtureRequest) -> Iterator[tuple[Path, Path]]:
    """Socket and runsc's root of the machine's own engine, or of a private one of Debian's older release."""
    if request.param == "current":
        yield DEFAULT_SOCKET, DEFAULT_RUNSC_ROOT
    else:
        with running_engine("debian") as private:
            yield private.socket, private.runtime_root


@pytest.fixture(params=["gauntlet-runsc", "runc"])
async def rig(engine: tuple[Path, Path], host: Host, request: pytest.FixtureRequest) -> AsyncIterator[DockerRig]:
    """Set up after the host, so that containers end before their mounts are looked for."""
    rig = DockerRig(DockerPlace(*engine, request.param))
    yield rig
    await rig.close()


async def start(rig: DockerRig, slot: Slot) -> Guest:
    mounts = (Mount(slot.workspace, "/workspace", propagation="rslave"),)
    guest = Guest(await rig.create(rig.spec(command=SHELL, mounts=mounts)))
    assert await guest.run("echo up") == "up\n"
    return guest


async def start_judge(rig: DockerRig, made: JudgeMounts) -> Guest:
    mounts = tuple(Mount(mount.source, mount.target, read_only=mount.read_only) for mount in made.mounts)
    return Guest(await rig.create(rig.spec(command=SHELL, mounts=mounts)))


async def test_warm_assignment_work_diff_and_judging(rig: DockerRig, host: Host) -> None:
    slot = await host.manager.prepare_slot("sbx_warm", DISK)
    guest = await start(rig, slot)
    assert await guest.run("ls -A /workspace /workspace/challenge") == (
        "/workspace:\nchallenge\nsubmissions\ntools\n\n/workspace/challenge:\n"
    )
    slot = await host.manager.assign(slot, host.digest)
    assert await guest.run(f"{AGENT} '{AGENTS_WORK}'") == "Fix it.\n"

    assert await guest.run("/workspace/tools/bin/lint") == "lint\n"
    assert "Read-only file system" in await guest.run("echo W > /workspace/tools/x")
    assert "failed" in await guest.run("rm /workspace/tools/bin/lint || echo failed")
    await guest.run("mount -o remount,rw /workspace/tools")
    assert "failed" in await guest.run("echo W > /workspace/tools/bin/lint || echo failed")
    assert await guest.run("cat /workspace/tools/bin/lint") == "#!/bin/sh\necho lint\n"
    assert "failed" in await guest.run(f"{AGENT} 'echo > /workspace/top' || echo failed")

    await rig.runtime.destroy(guest.created.container_id)
    slot = await host.manager.freeze(slot)
    result = await host.manager.extract(slot, "att_1")
    with result.entries_path.open("rb") as file:
        assert {entry.path.decode(): entry.change for entry in read_lines(file)} == EXPECTED

    judge = await start_judge(rig, await host.manager.judge_mounts(slot, JudgeKind.FINAL, "jsb_1"))
    look = "cd /workspace/challenge; cat new; ls tests; cat conftest.py; ls src /scoring; cat /reference/src/app.py"
    assert await judge.run(f"{AGENT} '{look}'") == (
        "new\ndata\ntest_app.py\n# the challenge's own\n"
        "/scoring:\nhidden_tests\nreference\n\nsrc:\napp.py\ndef add(a, b):\n    return a + b\n"
    )
    for place in ("/workspace/challenge", "/scoring", "/reference"):
        assert "failed" in await judge.run(f"echo > {place}/x || echo failed"), place
    assert await judge.run(f"{AGENT} 'echo report > /results/r; cat /results/r'") == "report\n"
    assert await judge.run("dd if=/dev/zero of=/results/big bs=1M count=70 >/dev/null 2>&1 || echo full") == "full\n"
    await rig.runtime.destroy(judge.created.container_id)

    reference = await start_judge(rig, await host.manager.judge_mounts(slot, JudgeKind.REFERENCE, "jsb_2"))
    assert await reference.run("cd /workspace/challenge; cat src/app.py; ls; ls ../submissions/code") == (
        "def add(a, b):\n    return a + b\nbriefing.md\nconftest.py\ndocs\npytest.ini\nsrc\ntests\n"
    )
    await rig.runtime.destroy(reference.created.container_id)


async def test_cold_start_shows_the_same(rig: DockerRig, host: Host) -> None:
    look = "cd /workspace; ls -lnR challenge tools submissions | sed s/^total.*//; grep -c /workspace /proc/mounts"
    seen = []
    for warm in (True, False):
        slot = await host.manager.prepare_slot(f"sbx_{warm}", DISK)
        if not warm:
            slot = await host.manager.assign(slot, host.digest)
        guest = await start(rig, slot)
        if warm:
            slot = await host.manager.assign(slot, host.digest)
        assert "failed" in await guest.run("echo W > /workspace/tools/x || echo failed")
        seen.append(await guest.run(look))
        await rig.runtime.destroy(guest.created.container_id)
    assert "briefing.md" in seen[0] and seen[0] == seen[1]


async def test_attempts_are_apart(rig: DockerRig, host: Host) -> None:
    slots = [await host.assigned() for _ in range(2)]
    guests = [await start(rig, slot) for slot in slots]
    await guests[0].run(f"{AGENT} 'cd /workspace; echo secret > challenge/secret; echo x > challenge/src/app.py'")
    assert await guests[0].run("cat /workspace/challenge/src/app.py") == "x\n"
    assert "return a - b" in await guests[1].run("cat /workspace/challenge/src/app.py")
    assert await guests[1].run("find / -xdev -name secret; find /workspace /tmp -name secret") == ""
    late = await host.assigned()
    assert await guests[1].run("ls /workspace") == "challenge\nsubmissions\ntools\n", "a neighbour's mounts stay there"
    assert late.workspace.exists()


async def test_full_disk_ends_no_attempt(rig: DockerRig, host: Host) -> None:
    slot = await host.assigned()
    guest = await start(rig, slot)
    fill = "dd if=/dev/zero of=/workspace/challenge/big bs=1M count=100"
    assert "No space left on device" in await guest.run(f"{AGENT} '{fill}' || true")
    assert (await host.manager.disk_usage(slot)).free < 1 << 20
    assert await guest.run(f"{AGENT} 'cd /workspace/challenge; rm big; echo ok > again; cat again'") == "ok\n"


async def test_removal_while_the_container_still_runs(rig: DockerRig, host: Host) -> None:
    """Not the daemon's order, but a crash may ask for it: nothing of ours stays mounted because a guest looks at it."""
    slot = await host.assigned()
    guest = await start(rig, slot)
    await guest.run("cd /workspace/challenge; exec 5<briefing.md")
    assert len(mountinfo.below(slot.workspace)) == 3
    await host.manager.destroy(slot)
    assert not slot.workspace.exists() and not mountinfo.below(host.state / "slots")
    await rig.runtime.destroy(guest.created.container_id)
    await host.manager.close()
    await host.nothing_left()
