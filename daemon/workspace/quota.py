"""Quota file systems: an ext4 of exactly N bytes in a sparse file, one a slot.

Owns their making, mounting and the admission of new ones. Every image is a copy of one premade image of its size, with
fixed UUID, hash seed and times, so that directory order and free space are the same in every attempt. No journal, no
barriers: what a host crash takes, the attempt's re-run brings back. Not owned: what lies in them (``slots.py``).
"""

from __future__ import annotations

import errno
import os
import subprocess
import threading
from pathlib import Path

from daemon.workspace import syscalls
from daemon.workspace.model import DiskAdmissionError, DiskUsage, WorkspaceError

MIN_DISK_BYTES = 16 << 20
IMAGE_NAME = "quota.img"
_MKFS_TIMEOUT_SECONDS = 120
_UUID = "7c5a2b3e-93d1-4e0c-8a4f-51b6c0d2e7f9"
# Named one by one, and mke2fs.conf ignored: a distribution's defaults must not change what an attempt sees.
_FEATURES = (
    "none,ext_attr,dir_index,filetype,extent,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize,"
    "metadata_csum,64bit"
)
_MKFS = (
    *("mkfs.ext4", "-q", "-F", "-O", _FEATURES, "-b", "4096", "-I", "256", "-i", "8192", "-m", "0", "-U", _UUID),
    *("-E", f"lazy_itable_init=1,nodiscard,hash_seed={_UUID},root_owner=0:0"),
)
# noinit_itable: the kernel would otherwise write the whole inode table of each sparse image in the background.
_MOUNT_OPTIONS = "noinit_itable,nobarrier"
_VERSION = 1  # of everything above: raise it when an option changes


class QuotaImages:
    """Makes quota images below ``base_directory`` (the premade ones) and admits them against the host's disk."""

    def __init__(self, base_directory: Path, slots_directory: Path, reserve_bytes: int) -> None:
        self._bases = base_directory
        self._slots = slots_directory
        self._reserve = reserve_bytes
        self._lock = threading.Lock()

    def available(self) -> int:
        """Bytes that can still be promised; negative when too much is.

        Counts what every image below the slots directory may yet grow by, whoever made it.
        """
        status = os.statvfs(self._slots)
        promised = 0
        for entry in os.scandir(self._slots):
            try:
                image = (Path(entry.path) / IMAGE_NAME).stat()
            except (FileNotFoundError, NotADirectoryError):
                continue
            promised += max(0, image.st_size - image.st_blocks * 512)
        return status.f_bavail * status.f_frsize - promised - self._reserve

    def create(self, image: Path, size: int) -> None:
        """Make the image, promised at once. Raises DiskAdmissionError; WorkspaceError for a size too small."""
        if size < MIN_DISK_BYTES:
            raise WorkspaceError(f"disk: {size} bytes is too small; remedy: at least {MIN_DISK_BYTES}")
        base = self._base(size)
        with self._lock:  # look and promise in one step
            available = self.available()
            if size > available:
                raise DiskAdmissionError(size, available, self._reserve)
            target = os.open(image, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            os.ftruncate(target, size)
        try:
            _copy_extents(base, target)
        finally:
            os.close(target)

    def _base(self, size: int) -> Path:
        base = self._bases / f"{size}-v{_VERSION}.ext4"
        with self._lock:
            if base.exists():
                return base
            fresh = base.with_suffix(".new")
            fresh.unlink(missing_ok=True)
            with fresh.open("xb") as file:
                file.truncate(size)
            # Both names of one thing: the first is read by current mke2fs, the second by those before 1.47.1.
            times = {"SOURCE_DATE_EPOCH": "1", "E2FSPROGS_FAKE_TIME": "1"}
            environment = {**os.environ, **times, "MKE2FS_CONFIG": os.devnull}
            try:
                subprocess.run(
                    [*_MKFS, str(fresh)],
                    check=True,
                    capture_output=True,
                    env=environment,
                    timeout=_MKFS_TIMEOUT_SECONDS,
                    stdin=subprocess.DEVNULL,
                )
            except FileNotFoundError as error:
                raise WorkspaceError("mkfs.ext4 is missing; remedy: install e2fsprogs") from error
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                words = (error.stderr or b"").decode(errors="replace").strip()
                raise WorkspaceError(f"mkfs.ext4 failed on {fresh}: {error}: {words}") from error
            fresh.rename(base)
            return base


def mount_image(image: Path, directory: Path) -> None:
    """Mount a quota image; its loop device frees itself with the unmount."""
    with syscalls.loop_device(image) as device:
        syscalls.mount(device, directory, "ext4", syscalls.MS_NOSUID | syscalls.MS_NODEV, _MOUNT_OPTIONS)


def usage(directory: Path) -> DiskUsage:
    """The numbers of a mounted quota file system."""
    status = os.statvfs(directory)
    total, free = status.f_blocks * status.f_frsize, status.f_bfree * status.f_frsize
    return DiskUsage(used=total - free, free=free, total=total)


def _copy_extents(source: Path, target: int) -> None:
    """Copy the data, not the holes, into an empty file of the same size."""
    with source.open("rb") as file:
        fd, at = file.fileno(), 0
        while True:
            try:
                at = os.lseek(fd, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # no data behind `at`
                    return
                raise
            end = os.lseek(fd, at, os.SEEK_HOLE)
            os.lseek(target, at, os.SEEK_SET)
            while at < end:
                copied = os.sendfile(target, fd, at, end - at)
                if copied == 0:
                    raise WorkspaceError(f"{source} became shorter while it was copied")
                at += copied
