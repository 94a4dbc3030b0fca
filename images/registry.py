"""A stack's root file system on a base image from a registry, by the stack's Dockerfile: asked for, never assumed.

`GAUNTLET_BASE_IMAGE=ubuntu:22.04@sha256:…` chooses it. The default is the Debian base of `rootfs`, on every machine:
were the base chosen by what happens to be reachable, two machines would measure agents in different sandboxes. The
result goes through the same clean-up as the default's, so that its tag, too, depends on contents alone.
"""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from docker.errors import APIError, BuildError, ImageNotFound

from images import lock, rootfs
from images.commands import run
from images.stacks import ImageError, Stack

ENVIRONMENT_VARIABLE = "GAUNTLET_BASE_IMAGE"
BY_DIGEST = re.compile(r".+@sha256:[0-9a-f]{64}$")


def require_digest(base: str) -> None:
    """Check that the base is named by digest: a tag is other bits tomorrow.

    Raises:
        ImageError: it is not.
    """
    if not BY_DIGEST.match(base):
        raise ImageError(f"{ENVIRONMENT_VARIABLE}={base}: name the base by digest, as NAME:TAG@sha256:<64 hex digits>")


def lock_file(stack: Stack, base: str) -> Path:
    """Return the lock file of a stack on that base: the distributions' versions differ, so each has its own."""
    name = re.sub(r"[^a-z0-9.]+", "-", base.partition("@")[0].lower()).strip("-")
    return stack.directory / f"packages.{name}.lock"


def make_rootfs(stack: Stack, base: str, root: Path, client: Any) -> None:
    """Fill the empty directory `root` with the Dockerfile's result on `base`, at the locked versions.

    Args:
        stack: what to build.
        base: the base image, by digest or already in the engine.
        root: an empty directory.
        client: a `docker.DockerClient`.

    Raises:
        ImageError: the base cannot be had, is not locked yet, holds other packages than locked or another Python
            than the stack promises, or the build fails.
    """
    source = lock_file(stack, base)
    if not source.exists():
        raise ImageError(
            f"{source} is missing: package versions on {base} are not locked yet\n"
            f"  to do: {ENVIRONMENT_VARIABLE}={base} python -m images pin {stack.name}"
        )
    text = source.read_text(encoding="utf-8")
    _build(stack, base, text, root, client)
    lock.require_installed(lock.parse(text, source), rootfs.installed(root), source, stack.name)
    rootfs.finish(stack, root)
    require_python(stack, base, root)


def pin(stack: Stack, base: str, root: Path, client: Any) -> dict[str, str]:
    """Install what the stack asks for on `base`, without a lock, and return what that gave."""
    _build(stack, base, "".join(f"{name}\n" for name in stack.packages), root, client)
    return rootfs.installed(root)


def _build(stack: Stack, base: str, wanted: str, root: Path, client: Any) -> None:
    """Build the Dockerfile with that list of packages and unpack the result under `root`."""
    try:
        client.images.get(base)
    except ImageNotFound:
        require_digest(base)
        _pull(base, client)
    with tempfile.TemporaryDirectory() as context:
        shutil.copyfile(stack.directory / "Dockerfile", Path(context) / "Dockerfile")
        (Path(context) / "packages.lock").write_text(wanted, encoding="utf-8")
        arguments = {"BASE_IMAGE": base, "LOCK_FILE": "packages.lock"}
        try:
            built, _ = client.images.build(
                path=context, buildargs=arguments, network_mode="host", rm=True, forcerm=True, nocache=True
            )
        except (BuildError, APIError) as failed:
            raise ImageError(f"building {stack.directory / 'Dockerfile'} on {base} failed: {failed}") from failed
    _export(built.id, root, client)


def require_python(stack: Stack, base: str, root: Path) -> None:
    """Check that the file system holds the Python that the stack's name promises.

    Raises:
        ImageError: it holds another one.
    """
    promised = re.match(r"python3(\d+)$", stack.name)
    if promised is None:
        return
    printed = run(["chroot", str(root), "python3", "--version"], what="asking for Python's version").strip()
    if not printed.startswith(f"Python 3.{promised[1]}."):
        raise ImageError(
            f"{base} brings {printed}; stack {stack.name} promises Python 3.{promised[1]}: choose another base"
        )


def _pull(base: str, client: Any) -> None:
    try:
        client.images.pull(base)
    except APIError as refused:
        raise ImageError(
            f"the base image {base} cannot be pulled: {refused}; "
            f"unset {ENVIRONMENT_VARIABLE} to build on Debian packages"
        ) from refused


def _export(image_id: str, root: Path, client: Any) -> None:
    container = client.containers.create(image_id, ["/bin/true"], network_mode="none")
    try:
        unpack = subprocess.Popen(["tar", "-x", "--numeric-owner", "-p", "-C", str(root)], stdin=subprocess.PIPE)
        assert unpack.stdin is not None, "opened as a pipe"
        with unpack.stdin:
            for chunk in container.export():
                unpack.stdin.write(chunk)
        if unpack.wait() != 0:
            raise ImageError(f"unpacking the image built from a registry's base failed with code {unpack.returncode}")
    finally:
        container.remove(force=True)
        client.images.remove(image_id, force=True)
