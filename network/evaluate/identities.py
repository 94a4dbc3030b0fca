"""Who can be at an end of a flow: pods, outside addresses, and the cluster's own parts.

CIDR rules see outside addresses only: a pod or a node has an address too, but the engine knows it by
its identity and never by its address. An API server outside the cluster is an outside address that
carries the reserved label as well, so that both `world` and `kube-apiserver` mean it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from network.evaluate.errors import EvaluateError
from network.evaluate.labels import (
    CLUSTER_KEY,
    CLUSTER_NAME,
    NAMESPACE_KEY,
    NAMESPACE_LABELS_PREFIX,
    LabelSet,
)

__all__ = ["Address", "Identity", "address", "entity", "pod"]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_ENTITIES: Mapping[str, tuple[str, ...]] = {
    "host": ("host",),
    "remote-node": ("remote-node",),
    "kube-apiserver": ("kube-apiserver", "remote-node"),
    "health": ("health",),
    "unmanaged": ("unmanaged",),
    "ingress": ("ingress",),
    "world": ("world",),
}


@dataclass(frozen=True)
class Identity:
    """One end of a flow. `address` is set for outside addresses only, `names` are what resolved to it."""

    labels: LabelSet
    address: Address | None = None
    names: tuple[str, ...] = ()
    is_pod: bool = False
    is_host: bool = False

    @cached_property
    def _hash(self) -> int:
        return hash((self.labels, self.address, self.names, self.is_pod, self.is_host))

    def __hash__(self) -> int:
        # Verdicts are remembered by peer, thousands of times: the labels are hashed once.
        return self._hash


def pod(
    namespace: str,
    labels: Mapping[str, str],
    namespace_labels: Mapping[str, str] | None = None,
    cluster: str = CLUSTER_NAME,
) -> Identity:
    """A pod. Its namespace always carries the name label that the API server sets."""
    own = {"kubernetes.io/metadata.name": namespace, **(namespace_labels or {})}
    everything = {
        NAMESPACE_KEY: namespace,
        CLUSTER_KEY: cluster,
        **{NAMESPACE_LABELS_PREFIX + key: value for key, value in own.items()},
        **labels,
    }
    return Identity(LabelSet.of("k8s", everything), is_pod=True)


def address(text: str, names: tuple[str, ...] = (), reserved: tuple[str, ...] = ()) -> Identity:
    """An address outside the cluster, the DNS names it was resolved from, and extra reserved labels."""
    value = ipaddress.ip_address(text)
    family = "world-ipv4" if value.version == 4 else "world-ipv6"
    labels = LabelSet.of("reserved", dict.fromkeys((family, *reserved), ""))
    return Identity(labels, address=value, names=names)


def entity(name: str) -> Identity:
    """A part of the cluster (host, remote-node, kube-apiserver …), or `world` without an address."""
    reserved = _ENTITIES.get(name)
    if reserved is None:
        raise EvaluateError("identity", f"unknown entity {name!r}, known: {', '.join(sorted(_ENTITIES))}")
    return Identity(LabelSet.of("reserved", dict.fromkeys(reserved, "")), is_host=name == "host")
