"""PostgreSQL takes a batch by COPY, past SQLAlchemy: what happens to a batch whose connection or server fails in it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy as sa

from records.database import open_engine
from records.errors import StoreUnavailableError
from records.events.sql import SqlEventStore, create_schema
from tests.support.events import lines
from tests.support.postgres import Cluster

LIVENESS_SECONDS = 10
ON_EVERY_ROW = "CREATE TRIGGER meddler BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION meddle()"


@pytest.fixture
def engine(postgres_cluster: Cluster) -> Iterator[sa.Engine]:
    made = open_engine(postgres_cluster.new_database())
    create_schema(made)
    yield made
    made.dispose()


def meddle(engine: sa.Engine, what: str) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $${what}$$")
        connection.exec_driver_sql(ON_EVERY_ROW)


def undo(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP FUNCTION meddle CASCADE")


def cut_off(engine: sa.Engine) -> None:
    """End the session that copies."""
    deadline = time.monotonic() + LIVENESS_SECONDS
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'COPY%%' AND state = 'active'"
    while True:
        with engine.begin() as connection:
            if connection.exec_driver_sql(end).all():
                return
        assert time.monotonic() < deadline, "nobody copied"
        time.sleep(0.02)


def test_a_connection_that_ends_in_a_copy_means_not_now_and_stores_nothing(engine: sa.Engine) -> None:
    store = SqlEventStore(engine)
    store.append("node", "att_1", "resource", 0, lines(1, 5))
    meddle(engine, "BEGIN PERFORM pg_sleep(60); RETURN NEW; END")
    cutter = threading.Thread(target=cut_off, args=(engine,))
    cutter.start()
    with pytest.raises(StoreUnavailableError):
        store.append("node", "att_1", "resource", 5, lines(6, 5))
    cutter.join()
    undo(engine)
    assert store.cursor("att_1", "resource") == 5
    assert store.append("node", "att_1", "resource", 5, lines(6, 5)) == 10
    assert store.counts("att_1").events == {"resource": 10}


def test_a_row_that_the_database_refuses_is_an_error_and_stores_nothing(engine: sa.Engine) -> None:
    store = SqlEventStore(engine)
    meddle(engine, "BEGIN IF NEW.line = 3 THEN RAISE EXCEPTION 'no third line'; END IF; RETURN NEW; END")
    with pytest.raises(psycopg.errors.RaiseException, match="no third line"):
        store.append("node", "att_1", "resource", 0, lines(1, 5))
    undo(engine)
    assert store.cursor("att_1", "resource") == 0
    assert store.append("node", "att_1", "resource", 0, lines(1, 5)) == 5


def test_a_full_disk_in_a_copy_means_not_now(engine: sa.Engine) -> None:
    store = SqlEventStore(engine)
    meddle(engine, "BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = 'disk_full'; END")
    with pytest.raises(StoreUnavailableError, match="no space left"):
        store.append("node", "att_1", "resource", 0, lines(1, 5))
    undo(engine)
    assert store.append("node", "att_1", "resource", 0, lines(1, 5)) == 5
