"""One environment for each module, and what an attempt's events say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.environment import Environment


@pytest.fixture(scope="module")
def environment() -> Iterator[Environment]:
    made = Environment(node={"grace_seconds": 1.0, "capacity": 8})
    try:
        made.start()
        yield made
    finally:
        made.stop()
