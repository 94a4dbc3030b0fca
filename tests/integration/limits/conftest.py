"""One environment with small limits, shared by this room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.environment import MIB, Environment
from tests.support.stacks import node_stacks

PIDS, DISK, TMP, MEMORY = 48, 48 * MIB, 16 * MIB, 384 * MIB


@pytest.fixture(scope="module")
def environment() -> Iterator[Environment]:
    limits = {"pids": PIDS, "disk_bytes": DISK, "tmp_bytes": TMP, "memory_bytes": MEMORY, "cpu_millis": 500}
    made = Environment(node={"grace_seconds": 1.0, "capacity": 8, "stacks": node_stacks(**limits)})
    try:
        made.start()
        yield made
    finally:
        made.stop()
