"""The database itself refuses every statement that would change or remove an audit entry.

Each statement form runs on a connection of its own that knows nothing of ours: no pragma, no role of the ledger. A
form that the dialect does not have is listed for the other one only. What the file's owner can still do must be
found by `verify`.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from records.database import open_engine
from records.ledger.port import Entry
from records.ledger.schema import REFUSAL, TRIGGERS, create_schema, grant_application
from records.ledger.sql import LedgerBrokenError, SqlLedger
from tests.support.postgres import Cluster

COLUMNS = "sequence, attempt_id, revision, record, previous_hash, entry_hash"
# The row of the first entry with another record, under the place that each form attacks.
FORGED = "1, 'att_1', 1, {blob}, '" + "0" * 64 + "', 'forged'"
BESIDE = "3, 'att_1', 1, {blob}, '{head}', 'forged'"
SKIPPING = "9, 'att_9', 1, {blob}, '{head}', 'forged'"
UNLINKED = "3, 'att_9', 1, {blob}, '" + "f" * 64 + "', 'forged'"
COPIED = "3, 'att_9', 1, {blob}, '{head}', '{head}'"
UPSERT = "ON CONFLICT (sequence) DO UPDATE SET record = excluded.record"

COMMON = {
    "update": "UPDATE audit_ledger SET record = {blob}",
    "update one": "UPDATE audit_ledger SET record = {blob} WHERE sequence = 1",
    "update the key": "UPDATE audit_ledger SET sequence = 7 WHERE sequence = 2",
    "delete": "DELETE FROM audit_ledger",
    "delete the last": "DELETE FROM audit_ledger WHERE sequence = 2",
    "insert over": f"INSERT INTO audit_ledger ({COLUMNS}) VALUES ({FORGED})",
    "insert a second first revision": f"INSERT INTO audit_ledger ({COLUMNS}) VALUES ({BESIDE})",
    "insert with a hole": f"INSERT INTO audit_ledger ({COLUMNS}) VALUES ({SKIPPING})",
    "insert unlinked": f"INSERT INTO audit_ledger ({COLUMNS}) VALUES ({UNLINKED})",
    "insert a known hash": f"INSERT INTO audit_ledger ({COLUMNS}) VALUES ({COPIED})",
    "upsert": f"INSERT INTO audit_ledger ({COLUMNS}) VALUES ({FORGED}) {UPSERT}",
    "upsert on the revision": f"INSERT INTO audit_ledger ({COLUMNS}) VALUES ({BESIDE}) "
    "ON CONFLICT (attempt_id, revision) DO UPDATE SET record = excluded.record",
    "insert or nothing": f"INSERT INTO audit_ledger ({COLUMNS}) VALUES ({FORGED}) ON CONFLICT DO NOTHING",
}
SQLITE = COMMON | {
    "replace": f"REPLACE INTO audit_ledger ({COLUMNS}) VALUES ({FORGED})",
    "insert or replace": f"INSERT OR REPLACE INTO audit_ledger ({COLUMNS}) VALUES ({FORGED})",
    "replace by the revision": f"INSERT OR REPLACE INTO audit_ledger ({COLUMNS}) VALUES ({BESIDE})",
    "replace by the hash": f"INSERT OR REPLACE INTO audit_ledger ({COLUMNS}) VALUES ({COPIED})",
    "insert or ignore": f"INSERT OR IGNORE INTO audit_ledger ({COLUMNS}) VALUES ({FORGED})",
    "insert or fail": f"INSERT OR FAIL INTO audit_ledger ({COLUMNS}) VALUES ({FORGED})",
    "insert or rollback": f"INSERT OR ROLLBACK INTO audit_ledger ({COLUMNS}) VALUES ({FORGED})",
    "update or replace": "UPDATE OR REPLACE audit_ledger SET attempt_id = 'att_1' WHERE sequence = 2",
    "update or ignore": "UPDATE OR IGNORE audit_ledger SET record = {blob}",
    "update by rowid": "UPDATE audit_ledger SET rowid = 5 WHERE rowid = 1",
    "update from": "UPDATE audit_ledger SET record = o.record FROM audit_ledger o WHERE o.sequence = 2",
    "with, delete": "WITH x AS (SELECT 1) DELETE FROM audit_ledger",
}
POSTGRES = COMMON | {
    "truncate": "TRUNCATE audit_ledger",
    "truncate cascade": "TRUNCATE audit_ledger RESTART IDENTITY CASCADE",
    "truncate as a replica": "SET session_replication_role = replica; TRUNCATE audit_ledger",
    "delete as a replica": "SET session_replication_role = replica; DELETE FROM audit_ledger",
    "update as a replica": "SET session_replication_role = replica; UPDATE audit_ledger SET revision = 5",
    "insert as a replica": "SET session_replication_role = replica; "
    f"INSERT INTO audit_ledger ({COLUMNS}) VALUES ({SKIPPING})",
    "delete in a cte": "WITH gone AS (DELETE FROM audit_ledger RETURNING 1) SELECT * FROM gone",
    "delete using": "DELETE FROM audit_ledger USING audit_ledger o WHERE o.sequence = audit_ledger.sequence",
    "merge, delete": "MERGE INTO audit_ledger l USING (SELECT 1 AS s) x ON l.sequence = x.s WHEN MATCHED THEN DELETE",
    "merge, update": "MERGE INTO audit_ledger l USING (SELECT 1 AS s) x ON l.sequence = x.s "
    "WHEN MATCHED THEN UPDATE SET record = {blob}",
    "update only": "UPDATE ONLY audit_ledger SET revision = 2",
}


def fill(ledger: SqlLedger) -> list[Entry]:
    return [ledger.append(name, {"attempt_id": name, "score": 1}) for name in ("att_1", "att_2")]


@pytest.fixture
def sqlite_ledger(tmp_path: Path) -> Iterator[tuple[SqlLedger, Path]]:
    path = tmp_path / "audit.db"
    engine = open_engine(f"sqlite:///{path}")
    create_schema(engine)
    yield SqlLedger(engine), path
    engine.dispose()


@pytest.fixture
def postgres_ledger(postgres_cluster: Cluster) -> Iterator[tuple[SqlLedger, sa.URL]]:
    url = sa.make_url(postgres_cluster.new_database())
    engine = open_engine(url.render_as_string(hide_password=False))
    create_schema(engine)
    yield SqlLedger(engine), url
    engine.dispose()


def connect(url: sa.URL) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(f"host={url.query['host']} user={url.username} dbname={url.database}", autocommit=True)


@pytest.mark.parametrize("form", SQLITE)
@pytest.mark.parametrize("recursive", ["ON", "OFF"])
def test_sqlite_refuses(sqlite_ledger: tuple[SqlLedger, Path], form: str, recursive: str) -> None:
    ledger, path = sqlite_ledger
    before = fill(ledger)
    statement = SQLITE[form].format(blob="x'7b7d'", head=before[-1].entry_hash)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA recursive_triggers={recursive}")
        with pytest.raises(sqlite3.IntegrityError, match=REFUSAL):
            connection.execute(statement)
    connection.close()
    assert list(ledger.entries()) == before
    assert ledger.verify().intact


@pytest.mark.parametrize("form", POSTGRES)
def test_postgres_refuses(postgres_ledger: tuple[SqlLedger, sa.URL], form: str) -> None:
    ledger, url = postgres_ledger
    before = fill(ledger)
    statement = POSTGRES[form].format(blob="'\\x7b7d'", head=before[-1].entry_hash)
    with connect(url) as connection, pytest.raises(psycopg.Error) as caught:
        connection.execute(statement)  # type: ignore[call-overload]
    assert REFUSAL in str(caught.value) or "unique constraint" in str(caught.value)
    assert list(ledger.entries()) == before
    assert ledger.verify().intact


def test_the_forms_do_change_an_unguarded_table(sqlite_ledger: tuple[SqlLedger, Path]) -> None:
    """Each refused form really is an attack: without the triggers it changes the table or breaks the chain."""
    ledger, path = sqlite_ledger
    entries = fill(ledger)
    harmless = {"insert or nothing", "insert or ignore"}
    refused_by_keys = {"insert over", "insert or fail", "insert or rollback"}
    refused_by_keys |= {"insert a known hash", "insert a second first revision"}
    with sqlite3.connect(path, isolation_level=None) as connection:
        for name in TRIGGERS:
            connection.execute(f"DROP TRIGGER {name}")
        for form in SQLITE.keys() - harmless - refused_by_keys:
            connection.execute("BEGIN")
            changes = connection.total_changes
            connection.execute(SQLITE[form].format(blob="x'7b7d'", head=entries[-1].entry_hash))
            assert connection.total_changes > changes, form
            connection.execute("ROLLBACK")
    connection.close()


def test_the_application_role_may_read_and_append_and_nothing_else(
    postgres_ledger: tuple[SqlLedger, sa.URL], postgres_cluster: Cluster
) -> None:
    owner, url = postgres_ledger
    role = f"app_{url.database}"
    with connect(url) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")  # type: ignore[call-overload]
    administration = open_engine(url.render_as_string(hide_password=False))
    grant_application(administration, role)
    administration.dispose()
    assert url.database is not None
    application = SqlLedger(open_engine(postgres_cluster.url(url.database, role)))
    before = fill(application)
    assert application.verify().intact
    forbidden = [
        "UPDATE audit_ledger SET revision = 2",
        "DELETE FROM audit_ledger",
        "TRUNCATE audit_ledger",
        "DROP TABLE audit_ledger",
        "ALTER TABLE audit_ledger DISABLE TRIGGER ALL",
        "DROP TRIGGER audit_ledger_delete ON audit_ledger",
        "SET session_replication_role = replica",
        "CREATE OR REPLACE FUNCTION audit_ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'",
    ]
    for statement in forbidden:
        with connect(url.set(username=role)) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement)  # type: ignore[call-overload]
    assert list(owner.entries()) == before
    application.close()


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("UPDATE audit_ledger SET record = x'7b7d' WHERE sequence = 2", "entry 2 .*content"),
        ("UPDATE audit_ledger SET attempt_id = 'att_9' WHERE sequence = 1", "entry 1 .*content"),
        ("DELETE FROM audit_ledger WHERE sequence = 2", "entry 3 .*expected sequence 2"),
        ("DELETE FROM audit_ledger WHERE sequence = 1", "entry 2 .*link"),
        ("UPDATE audit_ledger SET entry_hash = 'x' WHERE sequence = 1", "entry 2 .*link"),
        ("UPDATE audit_ledger SET revision = 2 WHERE sequence = 1", "expected revision 1"),
        ("UPDATE audit_ledger SET sequence = -1 WHERE sequence = 1", "entry -1 .*expected sequence 1"),
    ],
)
def test_verify_finds_what_the_owner_of_the_file_did(
    sqlite_ledger: tuple[SqlLedger, Path], damage: str, found: str
) -> None:
    ledger, path = sqlite_ledger
    fill(ledger)
    ledger.append("att_3", {"attempt_id": "att_3"})
    assert ledger.verify().intact
    with sqlite3.connect(path) as connection:
        for name in TRIGGERS:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(damage)
    connection.close()
    repairing = open_engine(f"sqlite:///{path}")
    create_schema(repairing)
    repairing.dispose()
    problems = "\n".join(ledger.verify().problems)
    assert "trigger" not in problems
    assert re.search(found, problems), problems


def test_verify_says_that_a_trigger_is_gone(
    sqlite_ledger: tuple[SqlLedger, Path], postgres_ledger: tuple[SqlLedger, sa.URL]
) -> None:
    ledger, path = sqlite_ledger
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TRIGGER audit_ledger_delete")
    connection.close()
    assert ledger.verify().problems == ("the trigger audit_ledger_delete is missing or switched off",)
    remote, url = postgres_ledger
    with connect(url) as connection:
        connection.execute("ALTER TABLE audit_ledger DISABLE TRIGGER audit_ledger_update")
        connection.execute("ALTER TABLE audit_ledger ENABLE TRIGGER audit_ledger_insert")
    assert len(remote.verify().problems) == 2


def test_a_row_that_was_silently_not_written_is_an_error(sqlite_ledger: tuple[SqlLedger, Path]) -> None:
    ledger, path = sqlite_ledger
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TRIGGER quiet BEFORE INSERT ON audit_ledger BEGIN SELECT RAISE(IGNORE); END")
    connection.close()
    with pytest.raises(LedgerBrokenError, match="was not written"):
        ledger.append("att_1", {"attempt_id": "att_1"})
