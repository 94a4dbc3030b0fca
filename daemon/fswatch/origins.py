"""The directories that were there before the agent acted: their handles and paths, one walk for each template.

An agent may remove one before anybody asked the kernel where it is, and then nobody can. A template's directories lie
in the lower layer, so their handles are the same in every attempt. They are found where the watch begins, on the claim
path: about 25 µs each, the shallow ones first, MAX_DIRECTORIES of them.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from daemon.fswatch.content import Workspace

MAX_DIRECTORIES = 10_000
MAX_TEMPLATES = 32
_MAX_HANDLE_BYTES = 128
_AT_EMPTY_PATH = 0x1000
_HEAD = struct.Struct("=Ii")  # handle_bytes, handle_type

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Origins:
    """Paths by handle (a `struct file_handle`), and handles by path."""

    paths: Mapping[bytes, bytes] = field(default_factory=dict)
    handles: Mapping[bytes, bytes] = field(default_factory=dict)


class Templates:
    """What is known of each template, by digest. Bounded; the longest unused is forgotten."""

    def __init__(self, walk: Callable[[Workspace], Origins] | None = None) -> None:
        self._walk = walk or origins_of
        self._known: dict[str, Origins] = {}

    def of(self, digest: str | None, workspace: Workspace) -> Origins:
        """The directories of a workspace that no agent has touched. Raises OSError."""
        if digest is None:
            return self._walk(workspace)
        known = self._known.pop(digest, None)
        # A template that was evicted and unpacked again has other handles.
        if known is None or not _same(known, workspace):
            known = self._walk(workspace)
        self._known[digest] = known
        while len(self._known) > MAX_TEMPLATES:
            del self._known[next(iter(self._known))]
        return known


def origins_of(workspace: Workspace, limit: int = MAX_DIRECTORIES) -> Origins:
    """Walk a workspace. Raises OSError."""
    paths: dict[bytes, bytes] = {}
    todo = deque([b""])
    while todo and len(paths) < limit:
        path = todo.popleft()
        fd = workspace.open_directory(path)
        if fd is None:
            continue
        try:
            handle = handle_of(fd)
            with os.scandir(fd) as entries:
                names = [os.fsencode(entry.name) for entry in entries if entry.is_dir(follow_symlinks=False)]
        finally:
            os.close(fd)
        if path:  # the root differs from slot to slot, and cannot be removed
            paths[handle] = path
        todo += (path + b"/" + name if path else name for name in sorted(names))
    return Origins(paths, {path: handle for handle, path in paths.items()})


def handle_of(fd: int) -> bytes:
    """An open file's `struct file_handle`. Raises OSError."""
    buffer = ctypes.create_string_buffer(_HEAD.size + _MAX_HANDLE_BYTES)
    _HEAD.pack_into(buffer, 0, _MAX_HANDLE_BYTES, 0)
    mount = ctypes.c_int()
    if _libc.name_to_handle_at(fd, b"", buffer, ctypes.byref(mount), _AT_EMPTY_PATH) < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"name_to_handle_at: {os.strerror(code)}")
    return buffer.raw[: _HEAD.size + _HEAD.unpack_from(buffer)[0]]


def _same(known: Origins, workspace: Workspace) -> bool:
    """Whether one directory of the lower layer still has its handle."""
    if not known.paths:
        return False
    handle, path = next(iter(known.paths.items()))
    fd = workspace.open_directory(path)
    if fd is None:
        return False
    try:
        return handle_of(fd) == handle
    finally:
        os.close(fd)
