"""Plain values of the runtime port: what a sandbox shall be, and what was seen of one.

Pure data. The mapping to an engine's own words belongs to its adapter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Literal

from daemon.supervisor.transport import ByteTransport

LABEL_INSTANCE = "gauntlet.instance"
LABEL_ENTRY = "gauntlet.entry_id"
LABEL_TEMPLATE = "gauntlet.template"

SUPERVISOR = "/usr/local/bin/gauntlet-supervisor"
HOSTNAME = "sandbox"
HOST_PIDS_BACKSTOP = 4096
"""Host tasks, not guest processes: the sentry's own threads count here, so the guest's limit is `nproc`."""

Propagation = Literal["rprivate", "private", "rslave", "slave"]


@dataclass(frozen=True, slots=True)
class Resources:
    """Limits of one sandbox. All sizes in bytes, `cpu_millis` in thousandths of a CPU.

    `pids` is the guest's own limit of processes and threads; `disk_bytes` the workspace's quota and, since a file
    cannot be larger than its filesystem, the size limit of one file. Zero and negative values raise ValueError.
    """

    memory_bytes: int
    cpu_millis: int
    disk_bytes: int
    pids: int
    tmp_bytes: int
    memory_reservation_bytes: int = 0
    """Soft limit; 0 means half of `memory_bytes`."""
    cpu_shares: int = 1024
    nofile: int = 1024

    def __post_init__(self) -> None:
        """Refuse what no sandbox can have."""
        for name in ("memory_bytes", "cpu_millis", "disk_bytes", "pids", "tmp_bytes", "cpu_shares", "nofile"):
            if getattr(self, name) <= 0:
                raise ValueError(f"resources: {name} must be above 0, not {getattr(self, name)}")
        if not 0 <= self.memory_reservation_bytes <= self.memory_bytes:
            raise ValueError(
                f"resources: memory_reservation_bytes must lie between 0 and memory_bytes ({self.memory_bytes}), "
                f"not {self.memory_reservation_bytes}"
            )
        if self.pids >= HOST_PIDS_BACKSTOP:
            raise ValueError(f"resources: pids must be below {HOST_PIDS_BACKSTOP}, not {self.pids}")

    @property
    def reservation(self) -> int:
        """The soft memory limit in force."""
        return self.memory_reservation_bytes or self.memory_bytes // 2


@dataclass(frozen=True, slots=True)
class Mount:
    """One bind mount of a host directory. `rslave` lets what is mounted below `source` later appear inside."""

    source: Path
    target: str
    read_only: bool = False
    propagation: Propagation = "rprivate"


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """One sandbox to create.

    `image` is an id (`sha256:…`), never a moving tag; `seccomp_profile` is the profile's JSON text ("" only where a
    test wants none); `template` the template's key. `command` replaces the supervisor in tests only.
    """

    name: str
    instance: str
    entry_id: str
    template: str
    image: str
    runtime: str
    resources: Resources
    seccomp_profile: str
    mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = (SUPERVISOR,)
    hostname: str = HOSTNAME
    stop_timeout_seconds: int = 30

    @property
    def labels(self) -> dict[str, str]:
        """The three labels every container of ours carries; the attempt's ids live in the journal."""
        return {
            LABEL_INSTANCE: self.instance,
            LABEL_ENTRY: self.entry_id,
            LABEL_TEMPLATE: self.template,
        }


@dataclass(frozen=True, slots=True)
class Created:
    """A started sandbox and the pipe to its PID 1, attached before the first instruction."""

    container_id: str
    transport: ByteTransport


class ContainerState(Enum):
    """What the engine says of a container."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    EXITED = "exited"
    REMOVING = "removing"
    UNKNOWN = "unknown"

    @property
    def live(self) -> bool:
        """Its processes exist."""
        return self in (ContainerState.RUNNING, ContainerState.PAUSED)


@dataclass(frozen=True, slots=True)
class Observation:
    """One look at one container. Times are the engine's wall clock in ns since the epoch, None when not yet.

    `exit_code` is None while it runs. `oom_killed` False proves nothing when the engine was down at the time.
    `image_digest` is the image's id, `sha256:…`.
    """

    container_id: str
    name: str
    state: ContainerState
    exit_code: int | None
    oom_killed: bool
    started_at_ns: int | None
    finished_at_ns: int | None
    labels: Mapping[str, str]
    image_digest: str
    error: str = ""

    @property
    def entry_id(self) -> str:
        """Our id of it, "" when the label is missing."""
        return self.labels.get(LABEL_ENTRY, "")


class EventKind(Enum):
    """What a runtime event tells."""

    RESYNC = "resync"
    """A (re)connect: what was missed is unknown, `observations` is the present truth."""
    OOM = "oom"
    DIE = "die"


@dataclass(frozen=True, slots=True)
class RuntimeEvent:
    """One event of one container, or a RESYNC (container_id "").

    An event may be delivered twice around a RESYNC; OOM precedes the DIE it caused.
    """

    kind: EventKind
    container_id: str = ""
    exit_code: int | None = None
    time_ns: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    observations: tuple[Observation, ...] = ()


@dataclass(frozen=True, slots=True)
class CgroupPaths:
    """Where a running container's counters are. With `version` 2 every directory is the same one.

    `host_pids` are the host processes in it now (under runsc: sentry and gofer). A directory is None when its
    controller is not mounted; it vanishes with the container, so keep the last sample.
    """

    version: Literal[1, 2]
    memory: Path | None
    cpu: Path | None
    cpuacct: Path | None
    pids: Path | None
    blkio: Path | None
    host_pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RuntimeVersion:
    """Who answers: the engine's release, the API version agreed upon, the runtimes it has registered."""

    engine: str
    api: str
    runtimes: tuple[str, ...]
