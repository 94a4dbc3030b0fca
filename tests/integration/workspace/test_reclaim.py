"""What a killed daemon leaves, and who removes it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.workspace import mountinfo, syscalls
from daemon.workspace.model import JudgeKind
from tests.support.workspaces import DISK, Host

# Another process plays the daemon that is killed: it makes slots in every phase, says so, and waits for its end.
DAEMON = """
import asyncio, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from daemon.workspace.manager import WorkspaceConfig, WorkspaceManager
from daemon.workspace.model import JudgeKind

async def main():
    manager = WorkspaceManager(WorkspaceConfig(Path(sys.argv[1]), reserve_bytes=64 << 20), ThreadPoolExecutor(2))
    await manager.start()
    slots = [await manager.prepare_slot(f"sbx_old{n}", 32 << 20) for n in range(4)]
    slots[1:] = [await manager.assign(slot, sys.argv[2]) for slot in slots[1:]]
    slots[2:] = [await manager.freeze(slot) for slot in slots[2:]]
    await manager.extract(slots[3], "att_old")
    await manager.judge_mounts(slots[3], JudgeKind.FINAL, "jsb_old")
    print("ready", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def killed_daemon(host: Host) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DAEMON, str(host.state), host.digest, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 30) == b"ready\n"
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()


async def test_everything_of_a_killed_daemon_is_reclaimed(host: Host) -> None:
    await killed_daemon(host)
    mounts, devices, directories = host.leftovers()
    assert len(devices) == 4 and len(directories) == 8 and len(mounts) > 12, "there was something to reclaim"
    found = await host.manager.reclaim(keep=frozenset())
    assert len(found.loop_devices) == 4 and len(found.directories) == 8 and len(found.mounts) >= 12
    await host.manager.close()
    await host.nothing_left()
    assert (await host.manager.reclaim(keep=frozenset())).empty


async def test_kept_and_live_slots_are_left_alone(host: Host) -> None:
    await killed_daemon(host)
    live = await host.assigned()
    found = await host.manager.reclaim(keep=frozenset({"sbx_old1", "sbx_old3"}))
    assert {Path(path).name for path in found.directories} == {"sbx_old0", "sbx_old2"}
    assert (live.workspace / "challenge/briefing.md").exists()
    kept = await host.manager.restore("sbx_old1")
    assert (kept.workspace / "challenge/briefing.md").exists()
    judged = await host.manager.restore("sbx_old3")
    again = await host.manager.judge_mounts(judged, JudgeKind.FINAL, "jsb_old")
    assert (again.mounts[0].source / "challenge/briefing.md").exists()


async def test_a_slot_being_made_is_kept(host: Host) -> None:
    slots = [f"sbx_n{n}" for n in range(6)]
    making = [asyncio.ensure_future(host.manager.prepare_slot(entry, DISK)) for entry in slots]
    while not all(future.done() for future in making):
        assert (await host.manager.reclaim(keep=frozenset())).empty
    for future in making:
        slot = await future
        await host.manager.assign(slot, host.digest)


async def test_pieces_without_their_directory_are_found(host: Host) -> None:
    """A loop device that was never mounted, a mount whose slot has no directory, a directory without a record."""
    slots, pool = host.state / "slots", host.state / "pool"
    (slots / "sbx_bare").mkdir()
    (pool / "sbx_face").mkdir()
    (pool / "sbx_face" / "deep").mkdir()
    syscalls.bind(host.state / "templates", pool / "sbx_face" / "deep")
    image = slots / "sbx_loop" / "quota.img"
    image.parent.mkdir()
    image.write_bytes(bytes(1 << 20))
    device = losetup(image)
    assert device in mountinfo.loop_devices(host.state)
    found = await host.manager.reclaim(keep=frozenset())
    assert found.loop_devices == (str(device),)
    assert {Path(path).name for path in found.directories} == {"sbx_bare", "sbx_face", "sbx_loop"}
    assert found.mounts == (str(pool / "sbx_face" / "deep"),)
    assert any((host.state / "templates").iterdir()), "what was mounted in a slot is not deleted with it"
    await host.manager.close()
    await host.nothing_left()


def losetup(image: Path) -> Path:
    """A loop device that stays when its maker goes, unlike ours."""
    made = subprocess.run(["losetup", "--find", "--show", image], capture_output=True, text=True, check=True)
    return Path(made.stdout.strip())


def test_a_loop_device_that_became_anothers_is_left_alone(tmp_path: Path) -> None:
    image = tmp_path / "image"
    image.write_bytes(bytes(1 << 20))
    device = losetup(image)
    try:
        syscalls.detach_loop(device, tmp_path / "what it was before")
        assert syscalls.loop_image(device.name) == image
    finally:
        syscalls.detach_loop(device, image)
    assert syscalls.loop_image(device.name) is None


async def test_half_written_files_are_removed(host: Host) -> None:
    halves = [host.state / "templates/.new-abc", host.state / "artifacts/.new-att_1"]
    for half in halves:
        half.mkdir()
        (half / "piece").write_text("x")
    found = await host.manager.reclaim(keep=frozenset())
    assert sorted(found.directories) == sorted(str(half) for half in halves)
    assert not any(half.exists() for half in halves)


@pytest.mark.parametrize("neighbour", ["mount", "loop"])
async def test_neighbours_are_not_touched(host: Host, tmp_path: Path, neighbour: str) -> None:
    """Another environment on the same host, with a name that begins like ours."""
    other = tmp_path / "state2"
    other.mkdir()
    image = other / "quota.img"
    image.write_bytes(bytes(1 << 20))
    if neighbour == "loop":
        with syscalls.loop_device(image) as device:
            assert (await host.manager.reclaim(keep=frozenset())).empty
            assert device in mountinfo.loop_devices(other)
    else:
        syscalls.bind(other, other)
        try:
            assert (await host.manager.reclaim(keep=frozenset())).empty
            assert mountinfo.is_mounted(other)
        finally:
            syscalls.umount(other)
