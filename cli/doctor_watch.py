"""What `doctor` says about seeing workspaces from the host: which mechanism a daemon here would take.

Asks the kernel for a group with the reports that a daemon needs, and overlay for the option that such marks need. The
daemon itself tries both on a real mount when it starts; either way attempts can run.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

# FAN_CLOEXEC, FAN_NONBLOCK, FAN_UNLIMITED_QUEUE; FAN_REPORT_DIR_FID, FAN_REPORT_NAME
_GROUP = 0x1 | 0x2 | 0x10 | 0x400 | 0x800
_OVERLAY_OPTION = Path("/sys/module/overlay/parameters/nfs_export")
_MAX_GROUPS = Path("/proc/sys/fs/fanotify/max_user_groups")


def mechanism() -> str:
    """One line: fanotify and how many attempts it serves, or inotify and why."""
    libc = ctypes.CDLL(None, use_errno=True)
    group = libc.fanotify_init(_GROUP, os.O_RDONLY)
    if group < 0:
        return f"inotify with rescans: fanotify answers {os.strerror(ctypes.get_errno())!r}"
    os.close(group)
    if not _OVERLAY_OPTION.exists():
        return "inotify with rescans: this kernel's overlay has no nfs_export"
    limit = _MAX_GROUPS.read_text(encoding="ascii").strip() if _MAX_GROUPS.exists() else "128"
    return f"fanotify, for up to {limit} attempts (fs.fanotify.max_user_groups); inotify beyond"
