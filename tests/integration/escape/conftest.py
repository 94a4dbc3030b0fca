"""One environment for the corpora of escapes and of honest work."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.environment import MIB, Environment
from tests.support.stacks import node_stacks


@pytest.fixture(scope="module")
def environment() -> Iterator[Environment]:
    made = Environment(node={"grace_seconds": 1.0, "capacity": 8, "stacks": node_stacks(disk_bytes=256 * MIB)})
    try:
        made.start()
        yield made
    finally:
        made.stop()
