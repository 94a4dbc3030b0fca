"""What a network file asks for, typed and with places: the one model that both readers build.

No decision is taken here. A `SandboxSpec` may come from a file with problems; it then holds what
could be read, so that later checks can report their own problems in the same run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from network.cidrs import Net
from network.model import Port
from network.problems import Place

Kind = Literal["compose", "values"]
Mode = Literal["none", "bridge"]
Extra = Literal["resources", "init", "volume"]


@dataclass(frozen=True, slots=True)
class Domain:
    """One allowed name or pattern in canonical form, `*` = every name."""

    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class Cidr:
    """One allowed network."""

    net: Net
    place: Place


@dataclass(frozen=True, slots=True)
class Entity:
    """One allowed Cilium entity that was not refused; in practice `world`."""

    name: str
    place: Place


@dataclass(frozen=True, slots=True)
class ExtraPort:
    """One entry of allowDomainsPorts: a port to one allowed domain, or to all of them (None)."""

    port: int
    protocol: str
    domain: str | None
    place: Place


@dataclass(slots=True)
class Grants:
    """What the file opens towards the outside for the whole sandbox."""

    domains: list[Domain] = field(default_factory=list)
    cidrs: list[Cidr] = field(default_factory=list)
    entities: list[Entity] = field(default_factory=list)
    ports: list[ExtraPort] = field(default_factory=list)

    @property
    def everything(self) -> Place | None:
        """Where the whole internet is granted (`world` or `*`), None when it is not."""
        for entity in self.entities:
            if entity.name == "world":
                return entity.place
        for domain in self.domains:
            if domain.name == "*":
                return domain.place
        return None

    def __bool__(self) -> bool:
        return bool(self.domains or self.cidrs or self.entities)


@dataclass(frozen=True, slots=True)
class Join:
    """A service's membership in a network, with extra host names it answers to there."""

    place: Place
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExtraUse:
    """Something only an operator may use: extra resources, an init container, a literal volume.

    `standard` is the code that refuses it at the standard level (None = allowed there).
    """

    kind: Extra
    place: Place
    standard: str | None
    what: str


@dataclass(frozen=True, slots=True)
class PodUser:
    """Whom a service runs as, as far as a file says; kept at the strict level."""

    uid: int | None = None
    gid: int | None = None
    fs_group: int | None = None
    non_root: bool = False
    read_only_root: bool = False


@dataclass(slots=True)
class ServiceSpec:
    """One service as written. `mode_place` and `runtime_place` say where those were set."""

    name: str
    place: Place
    mode: Mode | None = None
    mode_written: bool = False
    mode_place: Place | None = None
    networks_place: Place | None = None
    networks: dict[str, Join] = field(default_factory=dict)
    ports: tuple[Port, ...] | None = None
    ports_place: Place | None = None
    runtime: str | None = None
    runtime_place: Place | None = None
    names: tuple[str, ...] = ()
    gpu: Place | None = None
    user: PodUser = PodUser()
    x_default: Place | None = None
    implicit: bool = False

    @property
    def isolated(self) -> bool:
        """True for `network_mode: none` and `networkIsolated: true`."""
        return self.mode == "none"


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """A declared network; `plain_driver` = no driver or `bridge`."""

    name: str
    place: Place
    internal: bool = False
    plain_driver: bool = True


@dataclass(slots=True)
class SandboxSpec:
    """One network file. `networks` is what its top level declares, in order."""

    kind: Kind
    file: str
    services: dict[str, ServiceSpec] = field(default_factory=dict)
    networks: dict[str, NetworkSpec] = field(default_factory=dict)
    grants: Grants = field(default_factory=Grants)
    extras: list[ExtraUse] = field(default_factory=list)

    @property
    def connected(self) -> Iterator[ServiceSpec]:
        """The services that are on the network at all."""
        return (service for service in self.services.values() if not service.isolated)
