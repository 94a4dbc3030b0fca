"""A challenge's network file at submission: what the platform calls, for the backend that runs it.

Every environment enforces through `docker` for now: one container on gVisor without any network. What
that cannot enforce is refused here with R27, other services included. Variables are never filled in
from the server's environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from network.check import Checked, Source, check
from network.cluster import Cluster

CLOSED = Source("services: {default: {network_mode: none}}\n", "(no network file)")
"""What a challenge without a network file gets."""
LOCAL = Cluster(runtime_classes=("gvisor", "runsc"), default_runtime_class="gvisor", backend="docker")
"""The platform's own sandboxes, as a cluster."""


def check_challenge(
    network: Source | None,
    isolation: Any = None,
    *,
    eval_set: Source | None = None,
) -> Checked:
    """Check what a challenge asks for.

    `network` is its Compose or values file (None = no network at all), `isolation` its own setting as
    plain data (a level, or a mapping), `eval_set` the settings it may raise but not lower. The
    outcome's `ok`, `report`, `matrix` and `digest` are all that the platform needs.
    """
    own = None
    if isolation is not None:
        text = yaml.safe_dump({"isolation": isolation}, sort_keys=False)
        own = Source(text, "challenge.yaml (isolation)")
    return check(network or CLOSED, isolation=eval_set, task_isolation=own, cluster=LOCAL, backend="docker")


def record(checked: Checked) -> Mapping[str, Any]:
    """The explanation for the attempt's record: `{"digest", "services", "warnings"}`."""
    document = checked.to_json()
    return {"digest": checked.digest, "services": document["services"], "warnings": document["warnings"]}
