"""What a judge's container sees: the agent's final tree without the agent's say over the runner, read-only.

``/workspace`` is an overlay of lower layers only, ``mask : upper : Snapshot A``. The mask replaces each path it is
given by Snapshot A's content (directories opaque), or hides it with a whiteout where Snapshot A has nothing. The other
view is Snapshot A with hidden/reference over challenge/, without any agent file. Which paths to mask is
``steering.py``'s decision. Blocking; one call at a time per slot.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from daemon.workspace import mountinfo, syscalls
from daemon.workspace.baseline import Baseline, BaselineEntry
from daemon.workspace.layout import SlotPaths, checked_id, make_directory, remove_tree
from daemon.workspace.model import AGENT_GID, AGENT_UID, BindMount, JudgeKind, JudgeMounts
from daemon.workspace.slots import mount_layers
from daemon.workspace.steering import outermost
from daemon.workspace.templates import Template
from formats.package import UNPACKED_TIME

RESULTS_BYTES = 64 << 20
_RESULTS_OPTIONS = f"size={RESULTS_BYTES},nr_inodes=4096,mode=0755,uid={AGENT_UID},gid={AGENT_GID}"
_RESULTS_FLAGS = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
_NOT_A_DIRECTORY = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


def make_views(
    paths: SlotPaths, template: Template, kind: JudgeKind, judge_id: str, replaced: Iterable[bytes]
) -> JudgeMounts:
    """The mounts of one judge. Idempotent; what a broken-off call left is made anew."""
    home = paths.judges / checked_id("judge", judge_id)
    mask, view, results = home / "mask", home / "view", home / "results"
    if not (mountinfo.is_mounted(view) and mountinfo.is_mounted(results)):
        release(paths, judge_id)
        try:
            make_directory(home, 0o700)
            for path in (view, results):
                make_directory(path, 0o755)
            if kind is JudgeKind.FINAL:
                make_directory(mask, 0o755)
                build_mask(mask, paths.final, template, outermost(replaced))
                mount_layers(view, mask, paths.upper, template.snapshot)
            else:
                mount_layers(view, template.reference_layer, template.snapshot)
            syscalls.mount("tmpfs", results, "tmpfs", _RESULTS_FLAGS, _RESULTS_OPTIONS)
        except BaseException:
            release(paths, judge_id)
            raise
    mounts = (
        BindMount(view, "/workspace", read_only=True),
        BindMount(template.hidden, "/scoring", read_only=True),
        BindMount(template.hidden / "reference", "/reference", read_only=True),
        BindMount(results, "/results", read_only=False),
    )
    return JudgeMounts(paths.entry_id, judge_id, kind, mounts, results)


def release(paths: SlotPaths, judge_id: str) -> None:
    """Remove one judge's views. Idempotent."""
    home = paths.judges / checked_id("judge", judge_id)
    mountinfo.unmount_all(mountinfo.below(home))
    remove_tree(home)


def build_mask(mask: Path, final: Path, template: Template, replaced: Iterable[bytes]) -> None:
    """Fill an empty layer that replaces paths of the tree ``final`` by Snapshot A's.

    A path whose directory is none in the final tree is left alone: nothing is there to hide, and Snapshot A's file has
    no place to come back to.
    """
    baseline = template.baseline()
    tree = os.open(final, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for path in replaced:
            if not _make_parents(mask, tree, path):
                continue
            base = baseline.get(path)
            if base is None:
                os.mknod(_at(mask, path), stat.S_IFCHR, 0)  # a whiteout
            else:
                _restore(mask, template.snapshot, baseline, base)
    finally:
        os.close(tree)


def _make_parents(mask: Path, tree: int, path: bytes) -> bool:
    """The directories above ``path``, with the attributes that they have in the final tree."""
    parts = path.split(b"/")
    for depth in range(1, len(parts)):
        parent = b"/".join(parts[:depth])
        if os.path.lexists(_at(mask, parent)):
            continue
        try:
            fd = syscalls.open_beneath(tree, parent, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno in _NOT_A_DIRECTORY:
                return False
            raise
        try:
            status = os.fstat(fd)
        finally:
            os.close(fd)
        os.mkdir(_at(mask, parent))  # noqa: PTH102 (bytes)
        os.chown(_at(mask, parent), status.st_uid, status.st_gid)
        os.chmod(_at(mask, parent), stat.S_IMODE(status.st_mode))  # noqa: PTH101 (bytes)
    return True


def _restore(mask: Path, snapshot: Path, baseline: Baseline, top: BaselineEntry) -> None:
    """Copy a path of Snapshot A, with everything below it, and nothing of the agent's showing through."""
    for entry in (top, *baseline.under(top.path)):
        target = _at(mask, entry.path)
        if entry.type == "dir":
            os.mkdir(target)  # noqa: PTH102 (bytes)
            os.setxattr(target, "trusted.overlay.opaque", b"y")
        elif entry.type == "symlink":
            os.symlink(entry.target or b"", target)  # noqa: PTH211 (bytes)
        else:
            shutil.copyfile(_at(snapshot, entry.path), target, follow_symlinks=False)
        os.chown(target, entry.uid, entry.gid, follow_symlinks=False)
        if entry.type != "symlink":
            os.chmod(target, entry.mode)  # noqa: PTH101 (bytes)
        os.utime(target, (UNPACKED_TIME, UNPACKED_TIME), follow_symlinks=False)


def _at(root: Path, path: bytes) -> bytes:
    return os.path.join(os.fsencode(root), path)  # noqa: PTH118 (bytes)
