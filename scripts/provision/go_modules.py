"""Builds a program from Go modules into the cache, from the locked module in `tools/modules/<name>`.

`go.sum` there holds the hash of every source used, so that a build is what was reviewed or fails. A finished
build is recognised by its directory, which appears by rename: an interrupted build leaves nothing that
counts.
"""

import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts.provision.commands import ask, find, run
from scripts.provision.console import SetupError, slow_step
from scripts.provision.places import REPOSITORY, cache_directory, cached, private_directory
from scripts.provision.versions import MINIMUM_GO


@dataclass(frozen=True)
class GoBuild:
    """One module and the programs to build from it."""

    name: str
    """The directory under `tools/modules` and the first part of the cache directory's name."""
    version: str
    packages: Mapping[str, str]
    """Program name to package path."""
    ldflags: str = ""
    tags: str = ""
    environment: Mapping[str, str] = field(default_factory=lambda: {"CGO_ENABLED": "0"})
    usual_minutes: int = 3

    @property
    def directory(self) -> Path:
        """Where the programs are once built."""
        return cached(self.name, self.version)

    def program(self, name: str) -> Path:
        """Return the path of one built program."""
        return self.directory / name


def go_command() -> Path:
    """Return a Go toolchain that is new enough.

    Raises:
        SetupError: none found, or too old.
    """
    go = find("go") or next((p for p in [Path("/usr/local/go/bin/go")] if p.exists()), None)
    wanted = ".".join(map(str, MINIMUM_GO))
    remedy = f"install Go {wanted} or newer from https://go.dev/dl and put it on PATH"
    if go is None:
        raise SetupError("Go is needed to build parts of the environment and was not found", remedy)
    printed = ask([str(go), "env", "GOVERSION"]) or ""
    number = re.match(r"go(\d+)\.(\d+)", printed)
    if number is None or (int(number[1]), int(number[2])) < MINIMUM_GO:
        raise SetupError(f"{go} is {printed.strip() or 'not working'}; {wanted} is the oldest that works", remedy)
    return go


def ensure_built(build: GoBuild) -> Path:
    """Build what is not in the cache yet and return the directory of its programs."""
    if all(build.program(name).exists() for name in build.packages):
        return build.directory
    go = go_command()
    cache = private_directory(cache_directory())
    staging = Path(tempfile.mkdtemp(prefix=f".{build.name}-", dir=cache))
    try:
        with slow_step(build.name, f"building {build.version} from modules (about {build.usual_minutes} min, once)"):
            for name, package in build.packages.items():
                run(
                    [str(go), *_arguments(build, staging / name), package],
                    what=f"building {name} from Go modules",
                    remedy="check that the Go module proxy is reachable (go env GOPROXY), then run setup again",
                    cwd=REPOSITORY / "tools" / "modules" / build.name,
                    environment={"GOFLAGS": "-mod=readonly -buildvcs=false", **build.environment},
                )
        staging.chmod(0o755)
        if build.directory.exists():  # half a set, from an older version of this file
            shutil.rmtree(build.directory)
        staging.replace(build.directory)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return build.directory


def _arguments(build: GoBuild, output: Path) -> Sequence[str]:
    tags = ["-tags", build.tags] if build.tags else []
    return ["build", "-trimpath", *tags, "-ldflags", f"-s -w -buildid= {build.ldflags}".strip(), "-o", str(output)]
