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
"""What a challenge that says nothing gets."""
OPENABLE = Source("services: {default: {}}\n", "(no network file)")
"""What one with isolation settings alone gets: closed too, but a grant in them shows and is refused."""
LOCAL = Cluster(runtime_classes=("gvisor", "runsc"), default_runtime_class="gvisor", backend="docker")
"""The platform's own sandboxes, as a cluster."""


def check_challenge(
    network: Source | None,
    isolation: Any = None,
    *,
    eval_set: Source | None = None,
) -> Checked:
    """Check what a challenge asks for.

    `network` is its Compose or values file (None = no network at all), `isolation` its own setting: a
    Source, so that problems name its lines, or plain data (a level, or a mapping). `eval_set` holds the
    settings it may raise but not lower. The outcome's `ok`, `report`, `matrix` and `digest` are all that
    the platform needs.
    """
    own = isolation
    if isolation is not None and not isinstance(isolation, Source):
        text = yaml.safe_dump({"isolation": isolation}, sort_keys=False)
        own = Source(text, "challenge.yaml (isolation)")
    source = network or (CLOSED if own is None and eval_set is None else OPENABLE)
    return check(source, isolation=eval_set, task_isolation=own, cluster=LOCAL, backend="docker")


def record(checked: Checked) -> Mapping[str, Any]:
    """The explanation for the attempt's record: `{"digest": "sha256:…", "services", "warnings"}`."""
    document = checked.to_json()
    return {
        "digest": f"sha256:{checked.digest}",
        "services": document["services"],
        "warnings": document["warnings"],
    }


def identity(checked: Checked) -> str:
    """What a sandbox must be told apart by: empty for no network at all, else the policy's `sha256:…`.

    Two closed policies are the same sandbox whatever their service is called: nothing that is enforced
    differs. Anything else is told apart by its whole policy. Raises ValueError for a rejected file.
    """
    if not checked.ok:
        raise ValueError("a rejected file has no policy")
    [*verdicts] = checked.matrix.values()
    closed = len(verdicts) == 1 and verdicts[0].internet == "none" and not verdicts[0].outside_ingress
    return "" if closed else f"sha256:{checked.digest}"
