"""Fixtures of telemetry's tests with real processes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.collector import Collector
from tests.support.postgres import Cluster, postgres_cluster

__all__ = ["postgres_cluster"]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory whose path is short enough for a unix socket."""
    directory = Path(tempfile.mkdtemp(prefix="gtel-", dir="/tmp"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(params=["sqlite", "postgres"])
def collector(place: Path, request: pytest.FixtureRequest) -> Iterator[Collector]:
    """A running collector, over each database."""
    url = None
    if request.param == "postgres":
        cluster: Cluster = request.getfixturevalue("postgres_cluster")
        url = cluster.new_database()
    collector = Collector(place, url)
    collector.start()
    yield collector
    collector.stop()
