"""The daemon's settings: one JSON file, written by whoever stands the environment up.

Owns the schema. Nothing is read from the environment: what runs is what the file says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from daemon.runtime.types import Resources

GIB = 1024**3
DEFAULT_RUNTIME = "gauntlet-runsc"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Limits(_Strict):
    """Resources in the node's units: bytes, thousandths of a CPU, guest processes."""

    memory_bytes: Annotated[int, Field(gt=0)] = 4 * GIB
    cpu_millis: Annotated[int, Field(gt=0)] = 2_000
    disk_bytes: Annotated[int, Field(gt=0)] = 10 * GIB
    pids: Annotated[int, Field(gt=0, lt=4096)] = 256
    tmp_bytes: Annotated[int, Field(gt=0)] = 2 * GIB

    def resources(self) -> Resources:
        """As the runtime knows them."""
        return Resources(**self.model_dump())


class StackConfig(_Strict):
    """One stack: its image, what a sandbox gets by default, the most a challenge may ask for, warm sandboxes."""

    image: str
    defaults: Limits = Limits()
    policy: Limits = Limits()
    pool_target: Annotated[int, Field(ge=0, le=64)] = 1


class DaemonConfig(_Strict):
    """Everything one daemon needs to know."""

    node_id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
    instance: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")]
    state_dir: Path
    endpoint: str
    agent_endpoint: str
    scheduler_endpoint: str
    collector_endpoint: str
    # The trace sink's control socket; without one nobody hears the sentries: no process and no escape events.
    trace_endpoint: str | None = None
    token_key_file: Path
    docker_host: str = "unix:///var/run/docker.sock"
    runtime: str = DEFAULT_RUNTIME
    runtime_digest: str = ""
    runtime_state_dir: Path | None = None
    seccomp_profile: Path
    stacks: dict[str, StackConfig]
    capacity: Annotated[int, Field(ge=1, le=1_000)] = 4
    memory_reserve_bytes: Annotated[int, Field(ge=0)] = GIB
    disk_reserve_bytes: Annotated[int, Field(ge=0)] = 2 * GIB
    # auto tries fanotify on an overlay and falls back to inotify.
    filesystem_watch: Literal["auto", "fanotify", "inotify"] = "auto"
    grace_seconds: Annotated[float, Field(gt=0, le=300)] = 30.0
    socket_gid: int | None = None


def load(path: Path) -> DaemonConfig:
    """The settings of a file. Raises OSError, pydantic.ValidationError with every problem."""
    return DaemonConfig.model_validate_json(path.read_bytes())
