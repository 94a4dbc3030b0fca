"""A bench with one node and one uploaded challenge."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.scheduling import Bench, challenge_directory


@pytest.fixture
def challenge(tmp_path: Path) -> Path:
    return challenge_directory(tmp_path / "in")


@pytest.fixture
async def make_bench(tmp_path: Path) -> AsyncIterator[Callable[..., Bench]]:
    """Makes benches and stops them."""
    benches: list[Bench] = []

    def make(**changes: Any) -> Bench:
        bench = Bench(tmp_path, **changes)
        benches.append(bench)
        return bench

    yield make
    for bench in benches:
        await bench.core.stop()


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()
