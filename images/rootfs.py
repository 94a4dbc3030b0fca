"""A stack's root file system from Debian packages: debootstrap, then apt inside, at exactly the locked versions.

Needs root and a package archive; the archive is the one that debootstrap knows, or `GAUNTLET_DEBIAN_MIRROR`. What is
not reproducible about the result is `normalise`'s concern.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from images import lock
from images.commands import run
from images.normalise import normalise
from images.stacks import AGENT_NAME, AGENT_UID, WORKSPACE, ImageError, Stack

PYTHON_TREES = ("/usr/lib/python3*", "/usr/lib/python3/dist-packages", "/usr/share/python3")
_BUILD_FILES = {
    "usr/sbin/policy-rc.d": ("#!/bin/sh\nexit 101\n", 0o755),  # no package starts a service while being installed
    "etc/dpkg/dpkg.cfg.d/gauntlet-build": ("force-unsafe-io\nno-debsig\n", 0o644),
    "etc/apt/apt.conf.d/90gauntlet-build": ('APT::Sandbox::User "root";\nAcquire::Languages "none";\n', 0o644),
    "etc/postgresql-common/createcluster.conf": ("create_main_cluster = false\n", 0o644),
}
_REMOVED_AFTERWARDS = (
    "usr/sbin/policy-rc.d",
    "etc/dpkg/dpkg.cfg.d/gauntlet-build",
    "etc/apt/apt.conf.d/90gauntlet-build",
)
_ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "LC_ALL": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
}


def make_rootfs(stack: Stack, root: Path) -> None:
    """Fill the empty directory `root` with the stack's file system, as locked.

    Raises:
        ImageError: not root, a tool fails, or the archive no longer holds the locked versions.
    """
    pins = lock.parse(stack.lock_file.read_text(encoding="utf-8"), stack.lock_file)
    _bootstrap(stack, root)
    lock.require_available(pins, _available(root, sorted(pins)), stack.lock_file, stack.name)
    _install(root, [f"{name}={version}" for name, version in sorted(pins.items())])
    lock.require_installed(pins, installed(root), stack.lock_file, stack.name)
    finish(stack, root)


def pin(stack: Stack, root: Path) -> dict[str, str]:
    """Install what the stack asks for at the archive's versions, without a lock, and return what that gave."""
    _bootstrap(stack, root)
    _install(root, stack.packages)
    return installed(root)


def installed(root: Path) -> dict[str, str]:
    """Return package to version of a file system."""
    listed = _inside(root, ["dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Status}\\n"], "dpkg-query")
    rows = (line.split() for line in listed.splitlines())
    return {name: version for name, version, state in rows if state == "installed"}


def finish(stack: Stack, root: Path) -> None:
    """Add the agent, the workspace and the stack's links, then take out everything that is not reproducible."""
    passwd = (root / "etc" / "passwd").read_text(encoding="utf-8")
    if f"\n{AGENT_NAME}:" not in passwd:
        _inside(root, ["useradd", "-l", "-m", "-s", "/bin/bash", "-u", str(AGENT_UID), AGENT_NAME], "adding the agent")
    workspace = root / WORKSPACE.lstrip("/")
    workspace.mkdir(mode=0o755, exist_ok=True)
    for path, target in stack.links:
        link = root / path.lstrip("/")
        if not (root / target.lstrip("/")).exists():
            raise ImageError(f"stack {stack.name}: link {path} points to {target}, which no package brought")
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    for name in _REMOVED_AFTERWARDS:
        (root / name).unlink(missing_ok=True)
    normalise(root)
    _compile_python(root)


def _bootstrap(stack: Stack, root: Path) -> None:
    if os.geteuid() != 0:
        raise ImageError("building an image needs root (debootstrap, chroot); run it with sudo")
    mirror = os.environ.get("GAUNTLET_DEBIAN_MIRROR")
    command = ["debootstrap", "--variant=minbase", "--merged-usr", stack.suite, str(root)]
    run([*command, mirror] if mirror else command, what=f"debootstrap {stack.suite}")
    root.chmod(0o755)
    for name, (text, mode) in _BUILD_FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)
    _inside(root, ["apt-get", "update", "-qq"], "apt-get update in the new file system")


def _available(root: Path, packages: Sequence[str]) -> dict[str, list[str]]:
    """Return package to the versions the archive holds, newest first."""
    found: dict[str, list[str]] = {}
    for line in _inside(root, ["apt-cache", "madison", *packages], "apt-cache madison").splitlines():
        name, version, *_ = (field.strip() for field in line.split("|"))
        found.setdefault(name, []).append(version)
    return found


def _install(root: Path, packages: Sequence[str]) -> None:
    _inside(
        root,
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "--allow-downgrades", *packages],
        "installing the stack's packages",
    )


def _compile_python(root: Path) -> None:
    """Compile the system's Python files in a form that depends on their text alone.

    The root file system is read-only in a sandbox, so that what is not compiled here would be compiled anew by
    every process.
    """
    script = f"exec python3 -m compileall -q -j 1 --invalidation-mode unchecked-hash {' '.join(PYTHON_TREES)}"
    run(
        ["chroot", str(root), "/bin/sh", "-c", script + " || true"],  # a few test files are broken on purpose
        what="compiling Python files",
        environment=_ENVIRONMENT,
    )


def _inside(root: Path, command: Sequence[str], what: str) -> str:
    return run(["chroot", str(root), *command], what=what, environment=_ENVIRONMENT)


def discard(root: Path) -> None:
    """Remove a file system tree."""
    shutil.rmtree(root, ignore_errors=False)
