"""The network probe in a validation sandbox: what a closed sandbox promises, tried by a program from inside.

Owns the program's build and cache, the plan and the run. What is promised is worked out by `network` for the `docker`
backend from a file that grants nothing, never written down here.
"""

from __future__ import annotations

import hashlib
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

from images.commands import run
from images.stacks import HERE, ImageError
from network.check import Source, check
from network.probe import Check, Targets, expected_checks
from network.probeplan import VARIABLE, ProbePlan
from network.proberesults import ProbeError, ProbeVerdict, judge, read_results

SOURCE = HERE.parent / "tools" / "netprobe"
SERVICE = "sandbox"
CLOSED = f"services: {{{SERVICE}: {{network_mode: none}}}}"
_ENVIRONMENT = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"}
#: Without it a probe that can try nothing would look like a closed sandbox.
CONTROL = Check("control", "tcp", "reachable", "the sandbox's own loopback, which refuses the port", "127.0.0.1", 9)


def source_key() -> str:
    """A digest over the program's sources and the compiler's version."""
    digest = hashlib.sha256(run([_go(), "env", "GOVERSION"], what="asking for Go's version", cwd=SOURCE).encode())
    for path in sorted(SOURCE.iterdir()):
        if path.suffix in (".go", ".mod", ".sum"):
            digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def program(cache: Path) -> Path:
    """The probe's path in `cache`, a directory closed to other users; compiled when it is not there.

    Raises:
        ImageError: it cannot be compiled.
    """
    target = cache / f"netprobe-{source_key()[:16]}"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=cache, prefix=".netprobe-") as staging:
            output = Path(staging) / "netprobe"
            command = [_go(), "build", "-trimpath", "-ldflags", "-s -w -buildid=", "-o", str(output), "."]
            run(command, what="compiling the network probe", environment=_ENVIRONMENT, cwd=SOURCE)
            output.replace(target)
    return target


def promised(host: tuple[str, ...] = ()) -> list[Check]:
    """What a sandbox of the `docker` backend promises that is granted nothing; `host` are addresses of this machine."""
    outcome = check(Source(CLOSED, "closed.yaml"), kind="compose", backend="docker")
    if not outcome.ok:
        raise ImageError(f"the docker backend refuses a closed sandbox: {outcome.report.problems[0]}")
    targets = Targets(nodes=host, offline=True)
    return [*expected_checks(outcome.matrix, SERVICE, targets), CONTROL]


def _own_addresses() -> tuple[str, ...]:
    """This host's address towards others; none on a host without a route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        try:
            route.connect(("192.0.2.1", 9))  # sends nothing: asks the kernel
        except OSError:
            return ()
        return (str(route.getsockname()[0]),)


def _go() -> str:
    usual = Path("/usr/local/go/bin/go")
    return str(usual) if usual.exists() else "go"


def place(cache: Path, directory: Path) -> None:
    """Put the program into a directory that a sandbox will see, for its agent to run."""
    target = directory / "netprobe"
    shutil.copyfile(program(cache), target)
    target.chmod(0o755)


def probe(container: Any, path: str, *, user: str) -> ProbeVerdict:
    """Run the program at `path` in a running container as `user`, and compare with what is promised.

    Raises:
        ProbeError: it did not run, or printed something else.
        docker.errors.DockerException: the engine's.
    """
    plan = ProbePlan(tuple(promised(_own_addresses())), SERVICE, "docker", str(container.id))
    code, (output, errors) = container.exec_run([path], user=user, environment={VARIABLE: plan.text}, demux=True)
    if code != 0:
        raise ProbeError(f"the probe ended with {code}: {(errors or b'').decode(errors='replace')[-400:]}")
    return judge(plan, read_results(output or b""))
