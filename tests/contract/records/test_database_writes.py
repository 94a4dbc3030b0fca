"""How far a write goes before it is answered, on both databases: to the disk, or to the operating system only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from records.database import open_engine, writing
from tests.support.postgres import Cluster

# What each database says of a transaction that waits for the disk, and of one that does not.
ASKED = {"sqlite": ("PRAGMA synchronous", 2, 1), "postgresql": ("SHOW synchronous_commit", "on", "off")}


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    if request.param == "sqlite":
        made = open_engine(f"sqlite:///{tmp_path}/a.db")
    else:
        cluster: Cluster = request.getfixturevalue("postgres_cluster")
        made = open_engine(cluster.new_database())
    yield made
    made.dispose()


def test_only_the_write_that_says_so_does_not_wait_for_the_disk(engine: sa.Engine) -> None:
    question, waiting, hasty = ASKED[engine.dialect.name]
    for awaits_disk, expected in ((True, waiting), (False, hasty), (True, waiting)):
        with writing(engine, awaits_disk=awaits_disk) as connection:
            assert connection.exec_driver_sql(question).scalar() == expected
