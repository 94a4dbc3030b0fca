"""A test node's stacks: the usual ones of `tests.support.environment`, with some limits changed."""

from __future__ import annotations

from typing import Any

import docker

from images.build import ensure_image
from tests.support.environment import DEFAULTS, POLICY


def node_stacks(*, pool_target: int = 1, **limits: int) -> dict[str, Any]:
    """The node's `stacks` setting with these defaults (`memory_bytes`, `pids` … as in `DEFAULTS`)."""
    client = docker.from_env()
    try:
        tag = ensure_image("python311", client).tag
    finally:
        client.close()
    stack = {"image": tag, "defaults": {**DEFAULTS, **limits}, "policy": POLICY, "pool_target": pool_target}
    return {"python311": stack}
