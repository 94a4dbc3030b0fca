"""A stack's settings, typed. Raises with every problem, naming the key and the remedy."""

from __future__ import annotations

from typing import Annotated, Any

import pulumi
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from formats.problems import validate
from formats.sizes import parse_size

Size = Annotated[int, BeforeValidator(parse_size)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Sizes(_Strict):
    """Resources of a sandbox."""

    memory: Size
    cpus: Annotated[float, Field(ge=0.1, le=64)]
    disk: Size
    pids: Annotated[int, Field(ge=16, lt=4096)]
    tmp: Size

    def limits(self) -> dict[str, int]:
        """As the daemon's configuration has them."""
        return {
            "memory_bytes": self.memory,
            "cpu_millis": round(self.cpus * 1000),
            "disk_bytes": self.disk,
            "pids": self.pids,
            "tmp_bytes": self.tmp,
        }


class StackSettings(_Strict):
    """One stack of sandboxes."""

    pool: Annotated[int, Field(ge=0, le=64)]
    defaults: Sizes
    policy: Sizes


class LocalSettings(_Strict):
    """Settings of an environment on one machine (`gauntlet:local` in stacks/)."""

    instance: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,20}$")] = "local"
    docker_host: str = "unix:///var/run/docker.sock"
    daemons: Annotated[int, Field(ge=1, le=16)] = 1
    capacity: Annotated[int, Field(ge=1, le=1000)] = 4
    stacks: dict[str, StackSettings]


def local_settings() -> LocalSettings:
    """The present stack's. Raises FormatError."""
    value: Any = pulumi.Config("gauntlet").require_object("local")
    return validate(LocalSettings, value, f"stacks/Pulumi.{pulumi.get_stack()}.yaml: gauntlet:local")
