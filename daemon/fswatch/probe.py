"""Which mechanism this host has: tried out on a small overlay like those of attempts, not guessed from a version.

Blocking. Leaves nothing mounted; what a killed probe left is removed by the next one.
"""

from __future__ import annotations

import contextlib
import os
import select
from pathlib import Path

from daemon.fswatch.changes import CREATE
from daemon.fswatch.fanotify import FanotifySource
from daemon.workspace import syscalls
from daemon.workspace.layout import remove_tree

FANOTIFY, INOTIFY = "fanotify", "inotify"
_ANSWER_SECONDS = 5.0


def fanotify_refusal(directory: Path) -> str:
    """Why fanotify cannot be used here; empty when it can. `directory` is a place for the trial."""
    _clean(directory)
    directory.mkdir(mode=0o700)
    try:
        syscalls.mount("tmpfs", directory, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "size=1m,mode=0700")
        for name in ("lower", "upper", "work", "merged"):
            (directory / name).mkdir()
        options = "nfs_export=on,index=on," + ",".join(
            f"{option}={directory / name}"
            for option, name in (("lowerdir", "lower"), ("upperdir", "upper"), ("workdir", "work"))
        )
        syscalls.mount("overlay", directory / "merged", "overlay", 0, options)
        return _try(directory / "merged")
    except OSError as error:
        return error.strerror or str(error)
    finally:
        _clean(directory)


def _try(merged: Path) -> str:
    source = FanotifySource(merged)
    try:
        (merged / "directory").mkdir()
        (merged / "directory" / "file").touch()
        seen: set[tuple[int, bytes]] = set()
        wanted = {(CREATE, b"directory"), (CREATE, b"directory/file")}
        while not wanted <= seen:
            if not select.select([source], [], [], _ANSWER_SECONDS)[0]:
                return f"only {len(seen & wanted)} of {len(wanted)} changes were reported"
            batch = source.read()
            seen |= {(change.operation, change.path) for change in batch.changes} if batch is not None else set()
        return ""
    finally:
        source.close()


def _clean(directory: Path) -> None:
    for mounted in (directory / "merged", directory):
        if os.path.ismount(mounted):
            with contextlib.suppress(OSError):
                syscalls.umount(mounted, detach=True)
    remove_tree(directory)
