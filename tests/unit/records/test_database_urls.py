"""Opening databases: clear refusals, durable settings, read-only that is one."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from records.database import DatabaseUrlError, open_engine, reading, writing
from records.errors import StoreUnavailableError
from records.events.port import EventQuery
from records.events.sql import SqlEventStore, create_schema
from tests.support.events import lines


@pytest.mark.parametrize(
    ("url", "remedy"),
    [
        ("", "write sqlite"),
        ("events.db", "write sqlite"),
        ("sqlite://", "absolute path"),
        ("sqlite:///relative.db", "absolute path"),
        ("sqlite:////nonexistent/directory/events.db", "make it first"),
        ("mysql://host/db", "only sqlite and postgresql"),
    ],
)
def test_a_bad_url_is_refused_with_its_remedy(url: str, remedy: str) -> None:
    with pytest.raises(DatabaseUrlError, match=remedy):
        open_engine(url)


def test_every_sqlite_connection_is_set_up_for_durability(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/a.db")
    with reading(engine) as connection:
        for pragma, value in {"journal_mode": "wal", "synchronous": 2, "recursive_triggers": 1}.items():
            assert connection.exec_driver_sql(f"PRAGMA {pragma}").scalar() == value
    engine.dispose()


def test_a_failed_transaction_leaves_nothing(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/a.db")
    with writing(engine) as connection:
        connection.exec_driver_sql("CREATE TABLE t (a INTEGER)")
    with pytest.raises(RuntimeError), writing(engine) as connection:
        connection.exec_driver_sql("INSERT INTO t VALUES (1)")
        raise RuntimeError
    with reading(engine) as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM t").scalar() == 0
    engine.dispose()


def test_a_reader_cannot_write_and_sees_what_the_writer_stored(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    writer, reader = open_engine(url), open_engine(url, read_only=True)
    create_schema(writer)
    store, view = SqlEventStore(writer), SqlEventStore(reader)
    store.append("node", "att_1", "resource", 0, lines(1, 3))
    assert view.list_events(EventQuery("att_1")).lines == lines(1, 3)
    with pytest.raises(StoreUnavailableError, match="readonly"):
        view.append("node", "att_1", "resource", 3, lines(4, 1))
    store.append("node", "att_1", "resource", 3, lines(4, 1))
    assert view.cursor("att_1", "resource") == 4
    store.close()
    view.close()


def test_a_store_whose_schema_nobody_made_yet_is_unavailable(tmp_path: Path) -> None:
    store = SqlEventStore(open_engine(f"sqlite:///{tmp_path}/a.db"))
    with pytest.raises(StoreUnavailableError, match="no such table"):
        store.counts("att_1")
    store.close()


def test_our_own_mistakes_are_not_taken_for_an_absent_database(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/a.db")
    create_schema(engine)
    with pytest.raises(sa.exc.IntegrityError), writing(engine) as connection:
        connection.exec_driver_sql(
            "INSERT INTO event_streams VALUES (1, NULL, 'x', 'x', 0, 0, 0, 0, 0)",
        )
    engine.dispose()
