"""The supervisor as an image layer: compiled from `images/supervisor/`, the same bytes on every machine.

Owns the build and its cache key; the source is its own room.
"""

import hashlib
from pathlib import Path

from images.commands import run
from images.stacks import HERE, SUPERVISOR_PATH

SOURCE = HERE / "supervisor"
_ENVIRONMENT = {
    "CGO_ENABLED": "0",
    "GOOS": "linux",
    "GOARCH": "amd64",
    "GOAMD64": "v1",
    "GOFLAGS": "-buildvcs=false",
}


def source_key() -> str:
    """Return a digest over the sources and the compiler's version: the same key, the same binary."""
    digest = hashlib.sha256(run([_go(), "env", "GOVERSION"], what="asking for Go's version", cwd=SOURCE).encode())
    for path in sorted(SOURCE.glob("*")):
        if path.name in ("go.mod", "go.sum") or (path.suffix == ".go" and not path.name.endswith("_test.go")):
            digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def build_into(root: Path) -> Path:
    """Compile the supervisor to its fixed path under `root` (owner root, mode 0755) and return that path."""
    target = root / SUPERVISOR_PATH.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    for directory in (target.parent, *target.parent.relative_to(root).parents):
        (root / directory).chmod(0o755)
    run(
        [_go(), "build", "-trimpath", "-ldflags", "-s -w -buildid=", "-o", str(target), "."],
        what="compiling the supervisor",
        environment=_ENVIRONMENT,
        cwd=SOURCE,
    )
    target.chmod(0o755)
    return target


def _go() -> str:
    usual = Path("/usr/local/go/bin/go")
    return str(usual) if usual.exists() else "go"
