"""A Docker engine that answers: the running one, else an installed one started, else a new one.

A running daemon is used as it is, never restarted, and its configuration is not touched here. What this
module starts itself, `engine_process` records, so that `make down` can end exactly that.
"""

import os
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from scripts.provision import engine_process
from scripts.provision.commands import ask, find, run
from scripts.provision.console import SetupError, say, slow_step
from scripts.provision.debian import ensure_packages, unpack_beside
from scripts.provision.go_modules import GoBuild, ensure_built
from scripts.provision.internet import reachable
from scripts.provision.places import cached, publish
from scripts.provision.versions import CONTAINERD, MINIMUM_DOCKER_API, MOBY, RUNC

DOCKERD = GoBuild(
    name="moby",
    version=MOBY,
    packages={"dockerd": "github.com/moby/moby/v2/cmd/dockerd"},
    ldflags=f"-X github.com/moby/moby/v2/dockerversion.Version={MOBY}",
    tags="exclude_graphdriver_btrfs",
)
CONTAINERD_BUILD = GoBuild(
    name="containerd",
    version=CONTAINERD,
    packages={
        name: f"github.com/containerd/containerd/v2/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2")
    },
    ldflags=f"-X github.com/containerd/containerd/v2/version.Version={CONTAINERD}",
    tags="no_btrfs",
    usual_minutes=2,
)
RUNC_BUILD = GoBuild(
    name="runc",
    version=RUNC,
    packages={"runc": "github.com/opencontainers/runc"},
    ldflags=f"-X main.version={RUNC}",
    tags="seccomp",
    environment={"CGO_ENABLED": "1"},
    usual_minutes=1,
)
DEBIAN_PACKAGES = ("docker.io", "containerd", "runc")
INSTALLER = "https://get.docker.com"
DOWNLOAD_SECONDS = 60.0


@dataclass(frozen=True)
class Engine:
    """Where one kind of engine's programs are."""

    label: str
    directories: tuple[Path, ...]
    """What goes in front of PATH for dockerd, so that it finds its own containerd, shim and runc."""

    @property
    def dockerd(self) -> Path:
        """The daemon's program."""
        return next(d / "dockerd" for d in self.directories if (d / "dockerd").exists())


def current_engine() -> Engine:
    """Return the current engine, building it from modules if the cache has none."""
    if not RUNC_BUILD.program("runc").exists():
        ensure_packages(["libseccomp-dev", "pkg-config", "gcc", "libc6-dev"])
    built = tuple(ensure_built(build) for build in (DOCKERD, CONTAINERD_BUILD, RUNC_BUILD))
    return Engine(f"{MOBY} from modules", built)


def debian_engine() -> Engine:
    """Return Debian's own, older engine, unpacked beside the system: the tests' second one."""
    root = unpack_beside(DEBIAN_PACKAGES, _debian_root())
    return Engine("Debian's docker.io", (root / "usr" / "sbin", root / "usr" / "bin"))


def _debian_root() -> Path:
    return cached("docker-debian", "packages")


def ensure_engine() -> str:
    """Return the version of an engine that answers, after starting or installing one if none did."""
    _ensure_client()
    version = answering_version()
    if version is None:
        _start_or_install()
        version = answering_version()
    if version is None:
        raise SetupError(
            "a Docker engine was started but does not answer",
            f"read {engine_process.log_file()} and the output of `docker info`",
        )
    whose = " (started by setup)" if engine_process.ours_is_running() else " (found running, left as it is)"
    say("docker", f"engine {version}{whose}")
    return version


def answering_version() -> str | None:
    """Return the running engine's version, or None.

    Raises:
        SetupError: an engine answers that is too old to use.
    """
    docker = find("docker")
    answer = docker and ask([str(docker), "version", "--format", "{{.Server.Version}} {{.Server.APIVersion}}"], 30)
    if not answer:
        return None
    version, api = answer.split()
    if tuple(map(int, api.split("."))) < MINIMUM_DOCKER_API:
        raise SetupError(
            f"the running Docker engine {version} speaks API {api}; "
            f"{'.'.join(map(str, MINIMUM_DOCKER_API))} is the oldest that works",
            "upgrade Docker (https://docs.docker.com/engine/install) and run setup again",
        )
    return version


def _ensure_client() -> None:
    if find("docker") is None and find("dockerd") is None and reachable(INSTALLER):
        return  # the official installer brings it
    if find("docker") is None:
        root = unpack_beside(DEBIAN_PACKAGES, _debian_root())
        publish(root / "usr" / "bin" / "docker")


def _start_or_install() -> None:
    if os.environ.get("DOCKER_HOST"):
        raise SetupError(
            f"DOCKER_HOST is {os.environ['DOCKER_HOST']}, but no engine answers there",
            "start that engine, or unset DOCKER_HOST to let setup find or start one",
        )
    installed = find("dockerd")
    if installed is not None:
        say("docker", f"{installed} is installed but not running")
        if _start_service():
            return
        engine_process.start(installed, (installed.parent,), without_network=find("iptables") is None)
        return
    if reachable(INSTALLER):
        _official()
        if answering_version() is None and not _start_service():
            dockerd = find("dockerd")
            assert dockerd is not None, "the installer succeeded"
            engine_process.start(dockerd, (dockerd.parent,), without_network=find("iptables") is None)
        return
    say("docker", "no engine is installed and its installer cannot be reached: using one built from modules")
    engine = current_engine()
    engine_process.start(engine.dockerd, engine.directories, without_network=True)


def _start_service() -> bool:
    """Start an installed engine through systemd where that runs; the service is then the system's, not
    ours."""
    if not Path("/run/systemd/system").is_dir():
        return False
    say("docker", "starting the service: systemctl start docker")
    ask(["systemctl", "start", "docker"], 120)
    return answering_version() is not None


# The official path has not been run where this was written: its machines reach package registries only.
def _official() -> None:
    with slow_step("docker", f"official installer ({INSTALLER})"), tempfile.NamedTemporaryFile(suffix=".sh") as script:
        with urllib.request.urlopen(INSTALLER, timeout=DOWNLOAD_SECONDS) as answer:
            script.write(answer.read())
        script.flush()
        run(
            ["sh", script.name],
            what="Docker's installer",
            remedy="install Docker by hand (https://docs.docker.com/engine/install), or set GAUNTLET_OFFLINE=1",
        )
