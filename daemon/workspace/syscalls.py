"""The system calls that Python lacks: mounts, loop devices, openat2, syncfs. Each raises OSError.

Thin on purpose: no policy, no state. Numbers above 424 are the same on every architecture.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_NOEXEC = 0x8
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_PRIVATE = 1 << 18
MS_SHARED = 1 << 20
MNT_DETACH = 0x2
_UMOUNT_NOFOLLOW = 0x8

_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_OPEN_TREE, _MOVE_MOUNT, _OPENAT2, _MOUNT_SETATTR = 428, 429, 437, 442
_OPEN_TREE_CLONE, _OPEN_TREE_CLOEXEC = 0x1, 0x80000
_MOVE_MOUNT_F_EMPTY_PATH = 0x4
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID, _MOUNT_ATTR_NODEV = 0x1, 0x2, 0x4
_RESOLVE = 0x02 | 0x04 | 0x08  # NO_MAGICLINKS, NO_SYMLINKS, BENEATH

_LOOP_CTL_GET_FREE, _LOOP_CONFIGURE, _LOOP_CLR_FD = 0x4C82, 0x4C0A, 0x4C01
_LO_FLAGS_AUTOCLEAR = 0x4
# struct loop_config: u32 fd, u32 block_size, struct loop_info64 (flags are its 14th u32, the name follows), u64[8]
_LOOP_CONFIG = struct.Struct("=II" + "5Q4I64s64s32s2Q" + "8Q")
_LOOP_ATTEMPTS = 64
_DELETED = " (deleted)"

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, path: str | bytes | Path) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), os.fsdecode(path))
    return result


def mount(source: str | Path, target: Path, kind: str, flags: int, options: str = "") -> None:
    """mount(2)."""
    encoded = os.fsencode(options)
    _check(_libc.mount(os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), encoded), target)


def umount(target: str | Path, *, detach: bool = False) -> None:
    """umount2(2), never through a link. EINVAL: not a mount point; EBUSY: in use (unless `detach`)."""
    flags = _UMOUNT_NOFOLLOW | (MNT_DETACH if detach else 0)
    _check(_libc.umount2(os.fsencode(target), flags), target)


def bind(source: Path, target: Path) -> None:
    """Bind one directory (not what is mounted below it) at another."""
    mount(source, target, "none", MS_BIND)


def bind_read_only(source: Path, target: Path) -> None:
    """Bind read-only, nosuid and nodev *from the start*.

    A bind that is remounted read-only afterwards is copied writable into namespaces that see `target` as a slave.
    """
    tree = _check(
        _libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(source), _OPEN_TREE_CLONE | _OPEN_TREE_CLOEXEC), source
    )
    try:
        attributes = struct.pack("=4Q", _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV, 0, 0, 0)
        _check(
            _libc.syscall(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, attributes, ctypes.c_size_t(len(attributes))),
            source,
        )
        _check(_libc.syscall(_MOVE_MOUNT, tree, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH), target)
    finally:
        os.close(tree)


def open_beneath(directory: int, path: bytes, flags: int) -> int:
    """openat2(2) below an open directory: no link, magic or not, is followed, and nothing above is reached."""
    how = struct.pack("=3Q", flags | os.O_CLOEXEC, 0, _RESOLVE)
    return _check(_libc.syscall(_OPENAT2, directory, path, how, ctypes.c_size_t(len(how))), path)


def sync_filesystem(directory: Path) -> None:
    """syncfs(2): everything written to the file system of `directory` is on its disk."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _check(_libc.syncfs(fd), directory)
    finally:
        os.close(fd)


@contextlib.contextmanager
def loop_device(image: Path) -> Iterator[Path]:
    """A loop device over `image` for as long as the block runs, and for as long as what was mounted from it.

    AUTOCLEAR frees the device with its last user, so that unmounting is all the clean-up there is.
    """
    backing = os.open(image, os.O_RDWR | os.O_CLOEXEC)
    try:
        device, path = _configure_free_loop(backing, image)
        try:
            yield path
        finally:
            os.close(device)
    finally:
        os.close(backing)


def _configure_free_loop(backing: int, image: Path) -> tuple[int, Path]:
    name = os.fsencode(image)[-63:]
    config = _LOOP_CONFIG.pack(backing, 0, 0, 0, 0, 0, 0, 0, 0, 0, _LO_FLAGS_AUTOCLEAR, name, b"", b"", 0, 0, *[0] * 8)
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(_LOOP_ATTEMPTS):
            path = Path(f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}")
            device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.ioctl(device, _LOOP_CONFIGURE, config)
            except OSError as error:
                os.close(device)
                if error.errno != errno.EBUSY:  # someone else was quicker: ask for another one
                    raise
                continue
            return device, path
    finally:
        os.close(control)
    raise OSError(errno.EBUSY, f"no free loop device in {_LOOP_ATTEMPTS} attempts", str(image))


def loop_image(name: str) -> Path | None:
    """The image behind a loop device (``loop3``), also when it was unlinked; None when the device is free."""
    try:
        return Path((Path("/sys/block") / name / "loop/backing_file").read_text().rstrip("\n").removesuffix(_DELETED))
    except OSError:  # no such file: free, or freed just now
        return None


def detach_loop(device: Path, image: Path) -> None:
    """Free a loop device that an earlier life left behind; with users left, it goes when the last of them does.

    Device numbers are used again at once: only a device that is still over ``image`` is freed. While it is open here
    it cannot become another's.
    """
    fd = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    try:
        if loop_image(device.name) == image:
            fcntl.ioctl(fd, _LOOP_CLR_FD)
    except OSError as error:
        if error.errno != errno.ENXIO:  # ENXIO: free already
            raise
    finally:
        os.close(fd)
