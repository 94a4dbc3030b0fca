"""Takes everything out of a root file system that differs from one build to the next, or that a sandbox must not hold.

Owns the list of such things. Times and owners are `archive`'s concern: it clamps them while writing.
"""

import os
import re
import shutil
import stat
from pathlib import Path

FIXED_PASSWORD_DAY = "19700"
EMPTIED = ("var/log", "var/cache", "var/lib/apt", "var/tmp", "tmp", "run", "dev", "proc", "sys", "root")
"""Directories whose contents go: logs, caches, what the build left, and what the runtime mounts over."""
REMOVED = (
    "etc/.pwd.lock",
    "etc/machine-id",
    "etc/resolv.conf",
    "etc/apt/sources.list",
    "etc/ssl/private/ssl-cert-snakeoil.key",
    "etc/ssl/certs/ssl-cert-snakeoil.pem",
    "usr/sbin/policy-rc.d",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/man",
    "var/lib/dbus/machine-id",
    "var/lib/dpkg/lock",
    "var/lib/dpkg/lock-frontend",
    "var/lib/dpkg/triggers/Lock",
    "var/lib/systemd",
    "debootstrap",
)
BACKUPS = (
    "etc/passwd-",
    "etc/group-",
    "etc/shadow-",
    "etc/gshadow-",
    "etc/subuid-",
    "etc/subgid-",
    "var/lib/dpkg/status-old",
    "var/lib/dpkg/available",
    "var/lib/dpkg/available-old",
    "var/lib/dpkg/diversions-old",
    "var/lib/dpkg/statoverride-old",
    "var/lib/ucf/hashfile.0",
    "var/lib/ucf/registry.0",
)
FIXED_FILES = {"etc/hostname": "sandbox\n", "etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n"}


def normalise(root: Path) -> None:
    """Clean the tree under `root`; calling it again changes nothing."""
    for name in EMPTIED:
        if (root / name).is_dir():
            for entry in (root / name).iterdir():
                _remove(entry)
    for name in (*REMOVED, *BACKUPS):
        _remove(root / name)
    for name, text in FIXED_FILES.items():
        _remove(root / name)
        (root / name).write_text(text, encoding="utf-8")
    _fix_password_days(root / "etc" / "shadow")
    _walk(root)


def _fix_password_days(shadow: Path) -> None:
    """Replace the day of the last password change, which is the day of the build."""
    if shadow.exists():
        text = shadow.read_text(encoding="utf-8")
        fixed = re.sub(r"^([^:\n]*:[^:\n]*:)\d*:", rf"\g<1>{FIXED_PASSWORD_DAY}:", text, flags=re.MULTILINE)
        shadow.write_text(fixed, encoding="utf-8")


def _walk(root: Path) -> None:
    """Drop compiled Python, documentation but for licences, links to what was removed, and set-id bits."""
    documentation = root / "usr" / "share" / "doc"
    for directory, names, files in os.walk(root, topdown=True):
        here = Path(directory)
        if "__pycache__" in names:
            shutil.rmtree(here / "__pycache__")
            names.remove("__pycache__")
        for name in files:
            path = here / name
            found = path.lstat()
            if stat.S_ISREG(found.st_mode) and found.st_mode & (stat.S_ISUID | stat.S_ISGID):
                path.chmod(stat.S_IMODE(found.st_mode) & 0o777)
            if here.is_relative_to(documentation) and name != "copyright":
                path.unlink()
        if here == root / "etc" / "ssl" / "certs":
            for name in files:
                if os.path.lexists(here / name) and _points_to_snakeoil(here / name):
                    (here / name).unlink()


def _points_to_snakeoil(path: Path) -> bool:
    return path.is_symlink() and path.readlink().name == "ssl-cert-snakeoil.pem"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
