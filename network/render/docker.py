"""What the local daemon does: one container on gVisor with no network at all.

Measured on gVisor with Docker: a runtime registered with `--network=none` has loopback only, whatever
network the engine attaches. Siblings would need a second runtime and a bridge, and a bridge's gateway
address reaches the host's own listeners. Anything but `none` is therefore refused beforehand (R27).
"""

from __future__ import annotations

from typing import Any

from network.cluster import Cluster
from network.render.names import metadata
from network.render.plan import Plan

Object = dict[str, Any]
API = "gauntlet.dev/v1"
KIND = "DockerSandbox"
RUNTIME = "gauntlet-runsc"


def render(plan: Plan) -> list[Object]:
    """One object: the arguments of the container that concern the network."""
    [(service, verdict)] = plan.decision.matrix.items()
    meta = metadata(plan.sandbox_id, plan.namespace, "container", service)
    limited: Object = {}
    if verdict.ports is not None:  # nobody is there to use them; said so that no limit of the file gets lost
        limited["siblingPorts"] = [port.to_json() for port in verdict.ports]
    return [
        {
            "apiVersion": API,
            "kind": KIND,
            "metadata": meta,
            "spec": {
                "service": service,
                "networkMode": "none",
                "runtime": RUNTIME,
                "publish": [],
                **limited,
            },
        }
    ]


def baseline(cluster: Cluster | None, namespace: str) -> list[Object]:
    """Nothing: a container without network needs no standing object."""
    return []
