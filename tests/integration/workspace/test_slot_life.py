"""A slot from prepare to destroy, on real mounts."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import hashlib
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from daemon.workspace import mountinfo, quota, syscalls
from daemon.workspace.layout import make_directory
from daemon.workspace.manager import WorkspaceConfig, WorkspaceManager
from daemon.workspace.model import (
    DiskAdmissionError,
    JudgeKind,
    SlotPhase,
    UnknownTemplateError,
    WorkspaceBusyError,
    WorkspaceError,
    WorkspaceLostError,
    WorkspaceStateError,
)
from tests.support.workspaces import DISK, Host, agent, agent_python


def layout_of(workspace: Path) -> list[tuple[str, str, frozenset[str]]]:
    """What is mounted in a slot: where, which kind, how."""
    return sorted(
        (str(mount.target.relative_to(workspace)), mount.kind, mount.options) for mount in mountinfo.below(workspace)
    )


async def test_whole_life_leaves_nothing(host: Host) -> None:
    slot = await host.assigned()
    assert slot.phase is SlotPhase.ASSIGNED and slot.template_digest == host.digest
    assert (slot.workspace / "challenge/briefing.md").read_text() == "Fix it.\n"
    assert sorted(path.name for path in slot.workspace.iterdir()) == ["challenge", "submissions", "tools"]
    assert sorted(path.name for path in (slot.workspace / "submissions").iterdir()) == ["code", "docs"]
    mounts, devices, directories = host.leftovers()
    assert len(mounts) >= 6 and len(devices) == 1 and len(directories) == 2
    result = await host.extracted(slot)
    await host.manager.judge_mounts(slot, JudgeKind.FINAL, "jsb_1")
    await host.manager.destroy(slot)
    await host.manager.destroy(slot)
    await host.manager.close()
    await host.nothing_left()
    assert result.entries_path.exists()


async def test_ownership_and_modes(host: Host) -> None:
    slot = await host.assigned()
    shown = {
        name: ((slot.workspace / name).stat().st_uid, oct((slot.workspace / name).stat().st_mode & 0o777))
        for name in (
            "",
            "challenge",
            "challenge/src/app.py",
            "submissions",
            "submissions/code",
            "tools",
            "tools/bin/lint",
        )
    }
    assert shown == {
        "": (0, "0o755"),
        "challenge": (1000, "0o755"),
        "challenge/src/app.py": (1000, "0o644"),
        "submissions": (1000, "0o755"),
        "submissions/code": (1000, "0o755"),
        "tools": (0, "0o755"),
        "tools/bin/lint": (0, "0o755"),
    }
    for path in (host.state, host.state / "templates", host.state / "slots", host.state / "pool"):
        assert path.stat().st_mode & 0o777 == 0o700
    with pytest.raises(AssertionError, match="Permission denied"):
        agent(slot, "echo > new_top_level_name")


async def test_tools_are_read_only_even_for_root(host: Host) -> None:
    slot = await host.assigned()
    for write in (lambda: (slot.workspace / "tools/x").write_text(""), (slot.workspace / "tools/bin/lint").unlink):
        with pytest.raises(OSError) as caught:
            write()
        assert caught.value.errno == errno.EROFS


async def test_attempts_do_not_see_each_other_nor_change_the_template(host: Host) -> None:
    one, two = await host.assigned(), await host.assigned()
    agent(one, "echo mine > challenge/src/app.py; rm -r challenge/tests; echo s > submissions/code/s")
    assert "return a - b" in (two.workspace / "challenge/src/app.py").read_text()
    assert (two.workspace / "challenge/tests/test_app.py").exists()
    assert not list((two.workspace / "submissions/code").iterdir())
    agent(two, "rm challenge/briefing.md")
    assert (one.workspace / "challenge/briefing.md").exists()
    template = await host.manager.template(host.digest)
    again = type(template.baseline()).scan(template.snapshot)
    assert again.digest == template.baseline_digest, "the lower layer is as it was"
    assert (await host.extracted(two)).deleted == 1


async def test_warm_and_cold_layouts_are_the_same(host: Host) -> None:
    """A container started before the assignment sees copies of later mounts; here a mount namespace stands for it."""
    slot = await host.manager.prepare_slot("sbx_warm", DISK)
    script = (
        "mkdir -p $1; mount --rbind --make-rslave $0 $1; echo ready; read -r _; "
        "cd $1 && grep \" $1\" /proc/self/mountinfo | awk '{print $5, $6}'; echo x > tools/x; echo wrote=$?"
    )
    view = host.directory / "view"
    warm = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "--propagation", "slave", "bash", "-c", script, str(slot.workspace), str(view)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert warm.stdout is not None
    assert await asyncio.wait_for(warm.stdout.readline(), 10) == b"ready\n"
    slot = await host.manager.assign(slot, host.digest)
    warm_out, _ = await asyncio.wait_for(warm.communicate(b"\n"), 10)
    cold = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "--propagation", "slave", "bash", "-c", script, str(slot.workspace), str(view)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    cold_out, _ = await asyncio.wait_for(cold.communicate(b"\n"), 10)
    assert cold_out.replace(b"ready\n", b"") == warm_out
    assert b"tools ro,nosuid,nodev" in warm_out and b"challenge rw,nosuid,nodev" in warm_out
    assert b"wrote=1" in warm_out, "a late mount of tools must stay read-only in the container"


async def test_quota_is_enforced_and_freed(host: Host) -> None:
    slot = await host.assigned()
    before = await host.manager.disk_usage(slot)
    assert before.total <= DISK and before.used + before.free == before.total
    agent_python(
        slot,
        "import errno\nf = open('challenge/big', 'wb', 0)\nn = 0\n"
        "try:\n while True: n += f.write(bytes(1 << 20))\n"
        "except OSError as e: assert e.errno == errno.ENOSPC, e\n"
        "assert n >= 20 << 20, n",
    )
    full = await host.manager.disk_usage(slot)
    assert full.free < 1 << 20 and full.used > before.used
    agent(slot, "rm challenge/big; echo works > challenge/again")
    assert (await host.manager.disk_usage(slot)).free > 20 << 20
    other = await host.assigned()
    assert (await host.manager.disk_usage(other)).used < 1 << 20, "a neighbour does not notice"


async def test_a_full_disk_can_be_extracted(host: Host) -> None:
    slot = await host.assigned()
    agent(slot, "dd if=/dev/zero of=challenge/big bs=1M 2>/dev/null || true; ls challenge/big")
    result = await host.extracted(slot)
    assert result.added == 1 and result.omitted == 0


async def test_admission_counts_promises_and_strangers(host: Host) -> None:
    status = os.statvfs(host.state)
    free = status.f_bavail * status.f_frsize
    assert not await host.manager.fits(free)
    with pytest.raises(DiskAdmissionError, match="lower the disk size"):
        await host.manager.prepare_slot("sbx_big", free)
    assert not (host.state / "slots/sbx_big").exists()
    stranger = host.state / "slots/stranger"
    stranger.mkdir()
    with (stranger / "quota.img").open("wb") as image:
        image.truncate(free - (100 << 20))
    assert not await host.manager.fits(DISK * 4), "an unknown directory's image may still grow"
    (stranger / "quota.img").unlink()
    assert await host.manager.fits(DISK * 4)


async def test_equal_quota_file_systems(host: Host) -> None:
    """Same UUID, same hash seed, same free space, same order of names."""
    orders = []
    for _ in range(2):
        slot = await host.assigned()
        agent(slot, "for i in $(seq 200); do echo > challenge/f$i; done")
        usage = await host.manager.disk_usage(slot)
        orders.append(([entry.name for entry in os.scandir(slot.workspace / "challenge")], usage.free))
    assert orders[0] == orders[1]


def test_nodes_make_the_same_quota_image(tmp_path: Path) -> None:
    digests = set()
    for node in ("one", "two"):
        (tmp_path / node / "slots").mkdir(parents=True)
        images = quota.QuotaImages(tmp_path / node, tmp_path / node / "slots", reserve_bytes=0)
        images.create(tmp_path / node / "quota.img", DISK)
        digests.add(hashlib.sha256((tmp_path / node / "quota.img").read_bytes()).hexdigest())
    assert len(digests) == 1


async def test_phases_are_kept(host: Host) -> None:
    slot = await host.manager.prepare_slot("sbx_p", DISK)
    with pytest.raises(WorkspaceStateError, match="never used twice"):
        await host.manager.prepare_slot("sbx_p", DISK)
    with pytest.raises(UnknownTemplateError):
        await host.manager.assign(slot, "sha256:" + "0" * 64)
    with pytest.raises(UnknownTemplateError):
        await host.manager.assign(slot, "sha256:../../etc")
    with pytest.raises(WorkspaceStateError, match="nothing was assigned"):
        await host.manager.freeze(slot)
    slot = await host.manager.assign(slot, host.digest)
    assert await host.manager.assign(slot, host.digest) == slot, "a repeated call answers the same"
    with pytest.raises(WorkspaceStateError, match="freeze it"):
        await host.manager.extract(slot, "att_1")
    frozen = await host.manager.freeze(slot)
    assert await host.manager.freeze(frozen) == frozen
    with pytest.raises(WorkspaceStateError, match="never used twice"):
        await host.manager.assign(frozen, host.digest)
    with pytest.raises(WorkspaceStateError, match="extract before judging"):
        await host.manager.judge_mounts(frozen, JudgeKind.FINAL, "jsb_1")
    await host.manager.extract(frozen, "att_1")
    with pytest.raises(WorkspaceStateError, match="belongs to attempt att_1"):
        await host.manager.extract(frozen, "att_2")
    with pytest.raises(WorkspaceError, match="no id"):
        await host.manager.prepare_slot("../x", DISK)
    with pytest.raises(WorkspaceError, match="too small"):
        await host.manager.prepare_slot("sbx_tiny", 4096)


async def test_freeze_refuses_while_a_writer_is_left(host: Host) -> None:
    slot = await host.assigned()
    with (slot.workspace / "challenge/open").open("w") as writer:
        writer.write("x")
        with pytest.raises(WorkspaceBusyError, match="end the sandbox first"):
            await host.manager.freeze(slot)
    frozen = await host.manager.freeze(slot)
    assert not any((frozen.workspace / "challenge").iterdir()), "gone from the container's side"
    for path in (frozen.merged / "challenge/late", frozen.upper / "challenge/late"):
        with pytest.raises(OSError) as caught:
            path.write_text("")
        assert caught.value.errno == errno.EROFS


async def test_destroy_from_every_phase(host: Host) -> None:
    prepared = await host.manager.prepare_slot("sbx_a", DISK)
    assigned, frozen, extracted = await host.assigned(), await host.assigned(), await host.assigned()
    await host.manager.freeze(frozen)
    await host.extracted(extracted)
    assert len(mountinfo.loop_devices(host.state)) == 4
    for slot in (prepared, assigned, frozen, extracted):
        await host.manager.destroy(slot)
    await host.manager.close()
    await host.nothing_left()


async def test_destroy_while_the_content_is_in_use(host: Host) -> None:
    """A process stands in the slot: the unmount is lazy, the slot is gone from the disk at once, the rest follows."""
    slot = await host.assigned()
    holder = (slot.workspace / "challenge/briefing.md").open()
    await host.manager.destroy(slot)
    assert not slot.workspace.exists()
    assert not mountinfo.below(host.state / "slots")
    holder.close()
    await host.manager.close()
    await host.nothing_left()


async def test_half_made_slot_leaves_nothing(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    real = make_directory

    def failing(path: Path, mode: int, uid: int = 0, gid: int = 0) -> None:
        if path.name == "submissions":
            assert mountinfo.is_mounted(path.parents[2] / "slots/sbx_h/quota"), "the failure comes late"
            raise OSError(errno.EIO, "disk says no")
        real(path, mode, uid, gid)

    monkeypatch.setattr("daemon.workspace.slots.make_directory", failing)
    with pytest.raises(WorkspaceError, match="disk says no"):
        await host.manager.prepare_slot("sbx_h", DISK)
    monkeypatch.undo()
    assert not (host.state / "slots/sbx_h").exists()
    await host.manager.prepare_slot("sbx_h", DISK)


async def test_failed_assignment_undoes_its_mounts(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    slot = await host.manager.prepare_slot("sbx_f", DISK)

    def failing(source: Path, target: Path) -> None:
        assert mountinfo.is_mounted(slot.workspace / "submissions"), "the failure comes late"
        raise OSError(errno.EPERM, "not today")

    monkeypatch.setattr(syscalls, "bind_read_only", failing)
    with pytest.raises(WorkspaceError, match="not today"):
        await host.manager.assign(slot, host.digest)
    monkeypatch.undo()
    assert layout_of(slot.workspace) == []
    assert (await host.manager.assign(slot, host.digest)).phase is SlotPhase.ASSIGNED


async def test_cancelled_prepare_leaves_nothing(host: Host) -> None:
    making = asyncio.ensure_future(host.manager.prepare_slot("sbx_c", DISK))
    async with asyncio.timeout(10):
        while not (host.state / "slots/sbx_c").exists():  # noqa: ASYNC110 (the thread sends no event)
            await asyncio.sleep(0)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    async with asyncio.timeout(10):
        while (host.state / "slots/sbx_c").exists() or (host.state / "pool/sbx_c").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await host.manager.close()
    await host.nothing_left()


async def test_many_slots_at_once(host: Host) -> None:
    slots = await asyncio.gather(*(host.manager.prepare_slot(f"sbx_{n}m", DISK) for n in range(12)))
    assert len(mountinfo.loop_devices(host.state)) == 12
    slots = await asyncio.gather(*(host.manager.assign(slot, host.digest) for slot in slots))
    assert len({slot.workspace for slot in slots}) == 12
    await asyncio.gather(*(host.manager.destroy(slot) for slot in (*slots, *slots)))
    await host.manager.close()
    await host.nothing_left()


async def test_restore_after_a_restart(host: Host) -> None:
    assigned, extracted = await host.assigned(), await host.assigned()
    agent(assigned, "echo kept > challenge/kept")
    agent(extracted, "echo kept > challenge/kept")
    result = await host.extracted(extracted, "att_x")
    later = host.new_manager()
    await later.start()
    again = await later.restore(assigned.entry_id)
    assert again == assigned and (again.workspace / "challenge/kept").read_text() == "kept\n"
    restored = await later.restore(extracted.entry_id)
    assert restored.phase is SlotPhase.EXTRACTED
    assert await later.extract(restored, "att_x") == result
    assert (await later.extract(await later.freeze(again), "att_y")).diff_digest == result.diff_digest
    pool = [mount for mount in mountinfo.below(host.state / "pool") if mount.target == host.state / "pool"]
    assert len(pool) == 1, "a second start does not cover the pool that containers are slaves of"


async def test_lost_slots_are_said_to_be_lost(host: Host) -> None:
    slot = await host.assigned()
    later = host.new_manager()
    with pytest.raises(WorkspaceLostError, match="no record"):
        await later.restore("sbx_never")
    syscalls.umount(slot.workspace / "challenge")
    with pytest.raises(WorkspaceLostError, match="challenge"):
        await later.restore(slot.entry_id)
    (host.state / "slots" / slot.entry_id / "slot.json").write_text("{half")
    with pytest.raises(WorkspaceLostError, match="no record"):
        await later.restore(slot.entry_id)


async def test_state_directory_of_others_is_refused(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        (tmp_path / "open").mkdir(mode=0o777)
        (tmp_path / "open").chmod(0o777)
        with pytest.raises(WorkspaceError, match="chmod 700"):
            await WorkspaceManager(WorkspaceConfig(tmp_path / "open"), executor).start()
        with pytest.raises(WorkspaceError, match="without"):
            WorkspaceManager(WorkspaceConfig(tmp_path / "a,b"), executor)
    assert not mountinfo.below(tmp_path)


def mark_file_system(path: Path) -> int:
    """Put the mark of the telemetry's file-system source on what `path` lies on; 0, or the errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    watcher = libc.fanotify_init(0x00000400 | 0x00000800 | 0x1, os.O_RDONLY)  # REPORT_DIR_FID, REPORT_NAME, CLOEXEC
    assert watcher >= 0, os.strerror(ctypes.get_errno())
    try:
        created = ctypes.c_uint64(0x00000100)
        result = libc.fanotify_mark(watcher, 0x1 | 0x100, created, -100, os.fsencode(path))  # ADD, FILESYSTEM
        return ctypes.get_errno() if result < 0 else 0
    finally:
        os.close(watcher)


async def test_fanotify_can_mark_the_workspace(host: Host) -> None:
    slot = await host.assigned()
    assert mark_file_system(slot.merged) == 0
    # The mount option is what makes it possible: the view of judges, without it, cannot be marked.
    await host.extracted(slot)
    assert mark_file_system(slot.final) in (errno.EOPNOTSUPP, errno.ENODEV)
