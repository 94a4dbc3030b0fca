"""How this process's C allocator behaves over weeks: memory that was let go of goes back to the host.

glibc raises its threshold for memory mapped apart to the largest block ever freed; from then on large short-lived
blocks (a table of the interpreter that grew) leave holes in the heap that little else fills. It also keeps a heap a
thread. Both are fixed here, which halves the holes that a thousand sandboxes leave (docs/figures.md).
"""

from __future__ import annotations

import ctypes

# From malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_THRESHOLD = 128 * 1024


def steady() -> bool:
    """Fix it for this process, before its threads start; False on a C library that has no such settings."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = ((_M_MMAP_THRESHOLD, _THRESHOLD), (_M_TRIM_THRESHOLD, _THRESHOLD), (_M_ARENA_MAX, 2))
    return all(mallopt(*one) for one in settings)
