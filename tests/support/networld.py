"""The evaluator's identities for the pods and peers of a request to Cilium's engine, so both judge the same ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from network.evaluate import identities
from network.evaluate.flows import Flow
from network.evaluate.identities import Identity


def identity_of_pod(spec: Mapping[str, Any], cluster: str) -> Identity:
    """The evaluator's pod for one entry of a request's `pods`."""
    return identities.pod(spec["namespace"], spec["labels"], spec.get("namespace_labels"), cluster)


def identity_of_peer(spec: Mapping[str, Any]) -> Identity:
    """The evaluator's peer for one entry of a request's `peers`."""
    if "entity" in spec:
        return identities.entity(spec["entity"])
    return identities.address(spec["ip"], tuple(spec.get("names", ())), tuple(spec.get("reserved", ())))


def world_of(pods: Mapping[str, Any], peers: Mapping[str, Any], cluster: str = "default") -> dict[str, Identity]:
    """All ends of a request by name."""
    return {name: identity_of_pod(spec, cluster) for name, spec in pods.items()} | {
        name: identity_of_peer(spec) for name, spec in peers.items()
    }


def flow_of(world: Mapping[str, Identity], flow: Mapping[str, Any]) -> Flow:
    """The evaluator's flow for one of a request's."""
    return Flow(world[flow["from"]], world[flow["to"]], flow["protocol"], flow["port"])
