"""The control database's migrations: up, down, up again; and equal to the tables the code uses."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from records.database import DatabaseUrlError
from scheduler.store.engine import downgrade, open_engine, upgrade
from scheduler.store.schema import metadata
from scheduler.store.sql import SqlStore


def test_up_down_and_up_again(tmp_path: Path) -> None:
    engine = open_engine(str(tmp_path / "control.db"))
    tables = set(inspect(engine).get_table_names())
    assert tables == {*metadata.tables, "alembic_version"}
    downgrade(engine)
    assert set(inspect(engine).get_table_names()) == {"alembic_version"}
    upgrade(engine)
    assert set(inspect(engine).get_table_names()) == tables
    engine.dispose()


def test_attempts_and_challenges_from_before_network_files_have_none(tmp_path: Path) -> None:
    engine = open_engine(str(tmp_path / "control.db"))
    downgrade(engine, "0001")
    assert "network_json" not in {column["name"] for column in inspect(engine).get_columns("attempts")}
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO challenges VALUES ('sha256:1', 'c', 3, '{}', 5)"))
    upgrade(engine)
    row = SqlStore(engine).challenge("sha256:1")
    assert row is not None and (row.network_json, row.network_digest) == (None, "")
    engine.dispose()


def test_the_migrations_make_the_tables_the_code_uses(tmp_path: Path) -> None:
    engine = open_engine(str(tmp_path / "control.db"))
    with engine.begin() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_a_directory_that_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUrlError, match="no directory"):
        open_engine(str(tmp_path / "missing" / "control.db"))
