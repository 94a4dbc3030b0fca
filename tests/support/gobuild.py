"""Builds the tests' Go programs once and keeps them under the cache, found again by their content.

The key is a digest of the module's files, the Go version and the build's settings: a changed source builds
anew, an unchanged one starts in milliseconds. Two test processes that need one program build it once.

`python -m tests.support.gobuild` builds all of them beforehand, so that no test waits for a compiler.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scripts.provision.commands import ask
from scripts.provision.go_modules import go_command
from scripts.provision.places import REPOSITORY, cache_directory, private_directory

BUILD_SECONDS = 1700
TAIL_LINES = 20


@dataclass(frozen=True)
class GoProgram:
    """A program of the module in `directory` (relative to the repository)."""

    name: str
    directory: str
    package: str = "."
    ldflags: str = ""
    environment: Mapping[str, str] = field(default_factory=lambda: {"CGO_ENABLED": "0"})

    @property
    def module(self) -> Path:
        """The module's directory."""
        return REPOSITORY / self.directory

    def key(self, go_version: str) -> str:
        """Digest of everything the program depends on; `go.sum` stands for the modules it uses."""
        digest = hashlib.sha256(
            repr((go_version, self.package, self.ldflags, sorted(self.environment.items()))).encode()
        )
        for path in sorted(self.module.iterdir()):
            if path.suffix in (".go", ".s", ".mod", ".sum"):
                digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        return digest.hexdigest()[:16]


_VERSION = "k8s.io/component-base/version"
CILIUM_VERDICT = GoProgram("cilium-verdict", "tools/cilium-verdict")
KUBE_APISERVER = GoProgram(
    "kube-apiserver",
    "tools/apiserver",
    "k8s.io/kubernetes/cmd/kube-apiserver",
    f"-X {_VERSION}.gitVersion=v1.36.3 -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=36",
)
ETCD = GoProgram("etcd", "tools/apiserver/etcd", "go.etcd.io/etcd/server/v3")
NETPROBE = GoProgram("netprobe", "tools/netprobe")
ESCAPE = GoProgram("escape", "tests/escape")
ALL = (CILIUM_VERDICT, ETCD, KUBE_APISERVER, NETPROBE, ESCAPE)


def built(program: GoProgram) -> Path:
    """The path of the built program. Raises RuntimeError with the compiler's last lines, SetupError without Go."""
    go = go_command()
    version = (ask([str(go), "env", "GOVERSION"]) or "").strip()
    cache = private_directory(cache_directory())
    target = cache / f"test-{program.name}-{program.key(version)}"
    if target.exists():
        return target
    with (cache / f".test-{program.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():  # another process built it while we waited
            return target
        print(f"building {program.name} from Go modules (minutes, once)", file=sys.stderr, flush=True)
        return _build(str(go), program, target)


def _build(go: str, program: GoProgram, target: Path) -> Path:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{program.name}-") as staging:
        output = Path(staging) / program.name
        done = subprocess.run(
            [go, "build", "-trimpath", "-ldflags", f"-s -w {program.ldflags}", "-o", str(output), program.package],
            cwd=program.module,
            env={**os.environ, "GOFLAGS": "-mod=readonly -buildvcs=false", **program.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            tail = "\n".join(done.stdout.splitlines()[-TAIL_LINES:])
            raise RuntimeError(f"building {program.name} failed; is the Go module proxy reachable?\n{tail}")
        output.replace(target)
    return target


def module_directory(program: GoProgram, module: str) -> Path:
    """Where Go keeps the unpacked source of a module that the program depends on."""
    found = subprocess.run(
        [str(go_command()), "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module],
        cwd=program.module,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    ).stdout.strip()
    if not found:
        raise RuntimeError(f"{module} is not in the module cache; run: cd {program.directory} && go mod download")
    return Path(found)


if __name__ == "__main__":
    for wanted in ALL:
        print(built(wanted))
