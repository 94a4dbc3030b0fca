"""One environment with a short grace period, shared by the scenarios that leave its services alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.environment import MIB, Environment
from tests.support.stacks import node_stacks

GRACE_SECONDS = 4.0


@pytest.fixture(scope="module")
def environment() -> Iterator[Environment]:
    stacks = node_stacks(disk_bytes=48 * MIB)
    made = Environment(node={"grace_seconds": GRACE_SECONDS, "capacity": 8, "stacks": stacks})
    try:
        made.start()
        yield made
    finally:
        made.stop()
