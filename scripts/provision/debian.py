"""Debian packages: installed only when missing, or unpacked beside the system without being installed.

Owns apt and dpkg calls. On a system without apt it says which programs to install by hand.
"""

import functools
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from scripts.provision.commands import ask, find, run
from scripts.provision.console import SetupError, say, slow_step
from scripts.provision.places import cache_directory, private_directory

NEEDED_PROGRAMS = {
    "debootstrap": "debootstrap",
    "mkfs.ext4": "e2fsprogs",
    "losetup": "mount",
    "git": "git",
}
"""Program to the package that holds it: what the stack's image and the workspaces need on this machine."""


def ensure_programs(needed: dict[str, str] | None = None) -> None:
    """Install the packages of those programs that are not found."""
    missing = {name: package for name, package in (needed or NEEDED_PROGRAMS).items() if find(name) is None}
    if not missing:
        return
    say("system", f"not found: {', '.join(sorted(missing))}")
    ensure_packages(sorted(set(missing.values())))


def ensure_postgresql() -> None:
    """Install the PostgreSQL server where it is missing; its programs are not on PATH."""
    if not any(Path("/usr/lib/postgresql").glob("*/bin/postgres")):
        say("system", "not found: a PostgreSQL server (for the tests)")
        ensure_packages(["postgresql"])


def ensure_packages(packages: Sequence[str]) -> None:
    """Install the given Debian packages, without recommended ones and without starting services."""
    absent = [name for name in packages if "install ok installed" not in _status(name)]
    if not absent:
        return
    if find("apt-get") is None:
        raise SetupError(
            f"missing on this system, which has no apt-get: {', '.join(absent)}",
            f"install the equivalent of the Debian packages {' '.join(absent)} and run setup again",
        )
    _refresh_lists()
    with slow_step("system", f"installing {' '.join(absent)}"):
        run(
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *absent],
            what=f"installing {' '.join(absent)}",
            remedy=f"run: apt-get update && apt-get install --no-install-recommends {' '.join(absent)}",
            environment={"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"},
        )


def unpack_beside(packages: Sequence[str], directory: Path) -> Path:
    """Download packages and unpack their files under `directory`, leaving the system as it is.

    Used for the second Docker engine of the tests: an installed one would become the machine's own.
    """
    if directory.exists():
        return directory
    _refresh_lists()
    cache = private_directory(cache_directory())
    staging = Path(tempfile.mkdtemp(prefix=".debian-", dir=cache))
    try:
        (staging / "root").mkdir()
        with slow_step("system", f"unpacking {' '.join(packages)} beside the system"):
            run(
                ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", *packages],
                what=f"downloading {' '.join(packages)}",
                remedy="check that apt-get update works, then run setup again",
                cwd=staging,
            )
            for package in sorted(staging.glob("*.deb")):
                run(
                    ["dpkg", "-x", str(package), str(staging / "root")],
                    what=f"unpacking {package.name}",
                    remedy="free some disk space and run setup again",
                )
        (staging / "root").replace(directory)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return directory


def _status(package: str) -> str:
    return ask(["dpkg-query", "-W", "-f=${Status}", package]) or ""


@functools.cache
def _refresh_lists() -> None:
    with slow_step("system", "apt-get update"):
        run(
            ["apt-get", "update", "-qq"],
            what="apt-get update",
            remedy="mend /etc/apt/sources.list* or the network, then run setup again",
        )
