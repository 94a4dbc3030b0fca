"""The cluster file: protected ranges, runtime classes, backend, versions and enforcement.

Without one nothing about a cluster is assumed: only link-local and metadata are protected, and no
cluster-dependent refusal fires. The file is the operator's own, so a mistake in it is a plain
`ClusterError`, not a problem of the network file under check.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_validator

from network.cidrs import PRIVATE, CidrError, Protected, always_protected, inside, parse, whole_family
from network.places import Places, places
from network.problems import Place
from network.settings import in_words, plain, read_settings
from network.yamlread import Map, Scalar

_VERSION = re.compile(r"v?(\d{1,6})(?:\.(\d{1,6}))?.*", re.DOTALL)
HARDENED = re.compile(r"(gvisor|runsc|kata)([-_.].*)?")
"""Runtime classes that put more than the host's kernel interface between agent and host."""


NODE_RESOLVER = "169.254.20.10/32"
"""NodeLocal DNSCache, which backends that match it by address open for names."""


class ClusterError(ValueError):
    """The cluster file cannot be used; the message names key and remedy."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ProtectedRanges(_Strict):
    """Networks that no sandbox may reach, each a list of CIDRs."""

    vpc: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    control_plane: tuple[str, ...] = ()

    @field_validator("*", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("*")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for entry in value:
            try:
                parse(entry)
            except CidrError as error:
                raise ValueError(f"{entry}: {error}; {error.fix}") from error
        return value


class Enforcement(_Strict):
    """What the cluster enforces: network policy at all, and name filtering outside the policy objects.

    `name_filter` declares a gateway of the cluster that lets only listed names through (DNS, SNI and Host)
    for each sandbox; without one gke-dpv2 refuses domain lists.
    """

    policy: bool = True
    name_filter: bool = False


class Cluster(_Strict):
    """One cluster, as its operator describes it."""

    protected: ProtectedRanges = Field(default_factory=ProtectedRanges)
    runtime_classes: tuple[str, ...] | None = None
    default_runtime_class: str | None = None
    backend: Literal["cilium", "gke-dpv2", "kubernetes", "docker"] | None = None
    versions: Mapping[str, str] = Field(default_factory=dict)
    enforcement: Enforcement = Field(default_factory=Enforcement)
    cluster_name: str | None = None
    _places: Places = PrivateAttr(default_factory=Places)

    def place(self, path: str) -> Place | None:
        """Where the file says this (`versions.cilium`); None for a cluster that was not read from a file."""
        return self._places.of(path)

    @field_validator("versions", mode="before")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        return {str(key): str(item) for key, item in value.items()} if isinstance(value, dict) else value

    @field_validator("enforcement", mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if isinstance(value, bool):
            return {"policy": value}
        if isinstance(value, str):
            off = {"never", "none", "off", "disabled", "false", "no", ""}
            known = off | {"default", "always", "on", "enabled", "true", "yes"}
            if value.lower() not in known:
                raise ValueError(f"{value!r} is none of {', '.join(sorted(known - {''}))}")
            return {"policy": value.lower() not in off}
        return value

    @field_validator("default_runtime_class")
    @classmethod
    def _unset(cls, value: str | None) -> str | None:
        return None if value in ("", "CLUSTER_DEFAULT") else value

    def protected_ranges(self) -> tuple[Protected, ...]:
        """Every range this cluster protects, the always protected ones first; the same object at each call."""
        return self.closed_ranges

    @cached_property
    def closed_ranges(self) -> tuple[Protected, ...]:
        """What `protected_ranges` returns."""
        return (*always_protected(), *self.named_ranges)

    @cached_property
    def named_ranges(self) -> tuple[Protected, ...]:
        """Those of them that the cluster file names."""
        named = self.protected.model_dump()
        return tuple(Protected(name, parse(entry)) for name, entries in named.items() for entry in entries)

    def installed(self, runtime: str) -> bool | None:
        """Whether the runtime class is installed; None when the file does not list them."""
        if self.runtime_classes is None:
            return None
        return runtime in self.runtime_classes or runtime == self.default_runtime_class

    @property
    def hardened_runtime(self) -> str | None:
        """The runtime that strict sandboxes get unasked: the default if hardened, else an installed one."""
        candidates = [self.default_runtime_class, *sorted(self.runtime_classes or ())]
        return next((name for name in candidates if name and HARDENED.fullmatch(name)), None)

    def version(self, part: str) -> tuple[int, int] | None:
        """(major, minor) of `cilium`, `kubernetes`, ...; None when the file does not say."""
        found = _VERSION.fullmatch(self.versions.get(part, ""))
        return (int(found[1]), int(found[2] or 0)) if found else None


def unknown_families(cluster: Cluster | None) -> tuple[int, ...]:
    """The IP versions of which the cluster's pod and node ranges are not named."""
    ranges = cluster.protected if cluster else ProtectedRanges()
    known = [{parse(entry).version for entry in entries} for entries in (ranges.pods, ranges.nodes)]
    return tuple(version for version in (4, 6) if not all(version in found for found in known))


def unknown_private(cluster: Cluster | None) -> tuple[Protected, ...]:
    """The private ranges that may be pods or nodes, for plugins that match those by address."""
    families = unknown_families(cluster)
    nets = (parse(entry) for entry in PRIVATE)
    return tuple(Protected("private", net) for net in nets if net.version in families)


def closing_resolver(cluster: Cluster | None) -> Protected | None:
    """The range of the cluster file that holds the node's resolver, and so closes it; None without one."""
    if cluster is None:
        return None
    return inside(parse(NODE_RESOLVER), cluster.named_ranges)


def read_cluster(text: bytes | str, file: str) -> Cluster:
    """The cluster of a file; ClusterError names what is wrong with it."""
    root = read_settings(text, file, "backend: cilium", ClusterError)
    data = plain(root)
    ranges = data.get("protected")
    empty = [key for key in ("protected", "versions", "enforcement") if key in data and data[key] is None]
    empty += [f"protected.{key}" for key, value in ranges.items() if value is None] if isinstance(ranges, dict) else []
    if empty:
        raise ClusterError(f"{file}: {', '.join(empty)}: holds nothing; write a value, or leave the key out")
    versions = root.items.get("versions")
    if isinstance(versions, Map):  # as text: unquoted 1.20 is the number 1.2
        data["versions"] = {
            key: child.text if isinstance(child, Scalar) else plain(child) for key, child in versions.items.items()
        }
    try:
        cluster = Cluster.model_validate(data)
        cluster._places = places(root, file)
    except ValidationError as error:
        raise ClusterError(f"{file}: {in_words(error)}") from error
    if (version := whole_family(cluster.protected_ranges())) is not None:
        raise ClusterError(
            f"{file}: protected: together the ranges hold every address of IPv{version}, so no grant could mean"
            " anything; name the cluster's and the company's own networks"
        )
    return cluster
