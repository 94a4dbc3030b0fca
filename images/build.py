"""A stack's image in an engine: found by content, else made from cached layers, else built from packages.

`ensure_image` is the whole interface. Everything an image's bits depend on goes into a content key, so that a second
call only compares digests. What is kept: layers and one record a key, in a directory closed to other users.
"""

import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from docker.errors import ImageNotFound

from images import archive, registry, rootfs, supervisor
from images.archive import ImageRef, Layer
from images.stacks import HERE, REPOSITORY, SUPERVISOR_PATH, WORKSPACE, ImageError, Stack, find_stack

FORMAT = 1
"""Raised when the builder gives other bits from the same input."""
BUILDER_SOURCES = ("archive.py", "normalise.py", "rootfs.py", "stacks.py", "supervisor.py")
RUN_CONFIGURATION: dict[str, Any] = {
    "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"],
    "Cmd": [SUPERVISOR_PATH],
    "WorkingDir": WORKSPACE,
}

Report = Callable[[str], None]


def ensure_image(
    stack_name: str, client: Any, *, cache: Path | None = None, report: Report = lambda _: None
) -> ImageRef:
    """Return the stack's image, present in the engine behind `client`.

    Args:
        stack_name: a name from `images.stacks.STACKS`.
        client: a `docker.DockerClient`.
        cache: where layers are kept; default `<gauntlet cache>/images`.
        report: called with one line before each slow step.

    Raises:
        ImageError: it cannot be built; the message says what to do.
    """
    stack = find_stack(stack_name)
    directory = private(cache or default_cache())
    with _locked(directory):
        key = content_key(stack)
        image = _recorded(directory, key)
        if image is not None and present(image, client):
            return image
        layers = [_base_layer(stack, directory, client, report), _supervisor_layer(directory, report)]
        config = archive.configuration(layers, RUN_CONFIGURATION)
        image = archive.reference(REPOSITORY, stack.name, layers, config)
        if not present(image, client):
            report(f"loading {image.tag} into the engine")
            _load(image, layers, config, client, directory)
        if content_key(stack) != key:
            raise ImageError("the image's sources changed while it was built; build it again")
        _record(directory, key, image)
        return image


def present(image: ImageRef, client: Any) -> bool:
    """Return whether the engine holds this very image under its tag."""
    try:
        found = client.images.get(image.tag)
    except ImageNotFound:
        return False
    return tuple(found.attrs["RootFS"]["Layers"]) == image.layers


def default_cache() -> Path:
    """Return `<gauntlet cache>/images`."""
    root = os.environ.get("GAUNTLET_CACHE_DIR") or str(Path.home() / ".cache" / "gauntlet")
    return Path(root) / "images"


def content_key(stack: Stack) -> str:
    """Return a digest over everything the image's bits depend on."""
    return hashlib.sha256(f"{base_key(stack)} {supervisor.source_key()}".encode()).hexdigest()


def base_key(stack: Stack) -> str:
    """Return a digest over everything the base layer depends on: the lock, the stack's data, the builder itself."""
    parts = {
        "format": FORMAT,
        "stack": asdict(stack),
        "lock": _lock_text(stack),
        "builder": {name: hashlib.sha256((HERE / name).read_bytes()).hexdigest() for name in BUILDER_SOURCES},
        "run": RUN_CONFIGURATION,
    }
    if base_image := os.environ.get(registry.ENVIRONMENT_VARIABLE):
        used = (stack.directory / "Dockerfile", HERE / "registry.py")
        parts |= {"base": base_image, "dockerfile": [path.read_text(encoding="utf-8") for path in used]}
    return hashlib.sha256(archive.canonical(parts)).hexdigest()


def _lock_text(stack: Stack) -> str:
    base_image = os.environ.get(registry.ENVIRONMENT_VARIABLE)
    source = registry.lock_file(stack, base_image) if base_image else stack.lock_file
    return source.read_text(encoding="utf-8") if source.exists() else ""  # the builder says what to do about that


def private(directory: Path) -> Path:
    """Make a directory with mode 0700, or refuse one that others can write or own: its layers run as root.

    Raises:
        ImageError: it is a link, another user's, or open to others.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = directory.lstat()
    if directory.is_symlink() or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ImageError(f"{directory} must be a directory of user {os.geteuid()} with mode 0700; mend or remove it")
    return directory


def _base_layer(stack: Stack, directory: Path, client: Any, report: Report) -> Layer:
    base_image = os.environ.get(registry.ENVIRONMENT_VARIABLE)

    def make(root: Path) -> None:
        if base_image:
            report(f"building the base of {stack.name} on {base_image} (about 3 min, once)")
            registry.make_rootfs(stack, base_image, root, client)
            return
        report(f"building the base of {stack.name} from packages (about 3 min, once)")
        rootfs.make_rootfs(stack, root)

    return _layer(directory, lambda: f"base-{base_key(stack)}", make)


def _supervisor_layer(directory: Path, report: Report) -> Layer:
    def make(root: Path) -> None:
        report("compiling the supervisor")
        supervisor.build_into(root)

    return _layer(directory, lambda: f"supervisor-{supervisor.source_key()}", make)


def _layer(directory: Path, key_now: Callable[[], str], make: Callable[[Path], None]) -> Layer:
    """Return the cached layer of that key, or make it; both files appear by rename, the description last.

    Nothing is kept of sources that changed meanwhile: it would be believed under the wrong key for ever.
    """
    key = key_now()
    described, path = directory / f"{key}.json", directory / f"{key}.tar"
    if described.exists() and path.exists():
        known = json.loads(described.read_text(encoding="utf-8"))
        if path.stat().st_size == known["size"]:
            return Layer(path, known["digest"], known["size"])
    with tempfile.TemporaryDirectory(prefix=".build-", dir=directory) as scratch:
        root = Path(scratch) / "root"
        root.mkdir(mode=0o755)
        make(root)
        layer = archive.write_layer(root, Path(scratch) / "layer.tar")
        if key_now() != key:
            raise ImageError("the image's sources changed while it was built; build it again")
        layer.path.replace(path)
    _write(described, {"digest": layer.digest, "size": layer.size})
    return Layer(path, layer.digest, layer.size)


def _load(image: ImageRef, layers: list[Layer], config: bytes, client: Any, directory: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".load-", dir=directory) as scratch:
        path = Path(scratch) / "image.tar"
        archive.write_archive(path, image, layers, config)
        with path.open("rb") as body:
            client.images.load(body)
    if not present(image, client):
        raise ImageError(f"the engine loaded {image.tag} but does not show its layers: see the engine's log")


def _recorded(directory: Path, key: str) -> ImageRef | None:
    path = directory / f"image-{key}.json"
    if not path.exists():
        return None
    known = json.loads(path.read_text(encoding="utf-8"))
    return ImageRef(known["tag"], known["digest"], tuple(known["layers"]))


def _record(directory: Path, key: str, image: ImageRef) -> None:
    _write(directory / f"image-{key}.json", asdict(image))


def _write(path: Path, value: Any) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    fresh.replace(path)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Let one builder at a time work in the cache, across processes."""
    with (directory / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
