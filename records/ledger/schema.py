"""The ledger's table and the triggers that make it append-only, for SQLite and PostgreSQL.

SQLite: REPLACE deletes without firing a delete trigger unless recursive_triggers is on, and another connection may
have it off; so the insert trigger itself refuses any row that is not the next one. PostgreSQL: triggers are ENABLE
ALWAYS, else `session_replication_role = replica` would skip them; the application's role owns nothing and may only
read and insert. What the owner of the file or the database can still do, `verify` finds.
"""

from __future__ import annotations

import re

import sqlalchemy as sa

from records.database import reading, writing
from records.ledger.port import FIRST_REVISION, GENESIS_HASH

META = sa.MetaData()
LEDGER = sa.Table(
    "audit_ledger",
    META,
    sa.Column("sequence", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=False),
    sa.Column("attempt_id", sa.Text, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("record", sa.LargeBinary, nullable=False),
    sa.Column("previous_hash", sa.Text, nullable=False),
    sa.Column("entry_hash", sa.Text, nullable=False, unique=True),
    sa.UniqueConstraint("attempt_id", "revision"),
)
TRIGGERS = ("audit_ledger_insert", "audit_ledger_update", "audit_ledger_delete")
REFUSAL = "the audit ledger is append-only"

_SQLITE = (
    f"""
CREATE TRIGGER IF NOT EXISTS audit_ledger_update BEFORE UPDATE ON audit_ledger
BEGIN SELECT RAISE(ABORT, '{REFUSAL}: no update'); END
""",
    f"""
CREATE TRIGGER IF NOT EXISTS audit_ledger_delete BEFORE DELETE ON audit_ledger
BEGIN SELECT RAISE(ABORT, '{REFUSAL}: no delete'); END
""",
    f"""
CREATE TRIGGER IF NOT EXISTS audit_ledger_insert BEFORE INSERT ON audit_ledger
WHEN NEW.sequence IS NOT (SELECT coalesce(max(sequence), 0) + 1 FROM audit_ledger)
  OR NEW.previous_hash IS NOT coalesce(
       (SELECT entry_hash FROM audit_ledger ORDER BY sequence DESC LIMIT 1), '{GENESIS_HASH}')
  OR NEW.revision IS NOT (SELECT coalesce(max(revision), {FIRST_REVISION - 1}) + 1 FROM audit_ledger
                          WHERE attempt_id = NEW.attempt_id)
  OR EXISTS (SELECT 1 FROM audit_ledger WHERE entry_hash = NEW.entry_hash)
BEGIN SELECT RAISE(ABORT, '{REFUSAL}: only the next entry'); END
""",
)
_POSTGRES = (
    f"""
CREATE OR REPLACE FUNCTION audit_ledger_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION '{REFUSAL}: no %', lower(TG_OP) USING ERRCODE = 'insufficient_privilege'; END $$
""",
    f"""
CREATE OR REPLACE FUNCTION audit_ledger_next() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE head record; top integer;
BEGIN
  SELECT sequence, entry_hash INTO head FROM audit_ledger ORDER BY sequence DESC LIMIT 1;
  SELECT max(revision) INTO top FROM audit_ledger WHERE attempt_id = NEW.attempt_id;
  IF NEW.sequence IS DISTINCT FROM coalesce(head.sequence, 0) + 1
     OR NEW.previous_hash IS DISTINCT FROM coalesce(head.entry_hash, '{GENESIS_HASH}')
     OR NEW.revision IS DISTINCT FROM coalesce(top, {FIRST_REVISION - 1}) + 1 THEN
    RAISE EXCEPTION '{REFUSAL}: only the next entry' USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN NEW;
END $$
""",
    # Statement triggers: they refuse even a statement that matches no row, and every ON CONFLICT DO UPDATE.
    "CREATE TRIGGER audit_ledger_update BEFORE UPDATE ON audit_ledger EXECUTE FUNCTION audit_ledger_refuse()",
    "CREATE TRIGGER audit_ledger_delete BEFORE DELETE OR TRUNCATE ON audit_ledger "
    "EXECUTE FUNCTION audit_ledger_refuse()",
    "CREATE TRIGGER audit_ledger_insert BEFORE INSERT ON audit_ledger FOR EACH ROW "
    "EXECUTE FUNCTION audit_ledger_next()",
    *(f"ALTER TABLE audit_ledger ENABLE ALWAYS TRIGGER {name}" for name in TRIGGERS),
)


def create_schema(engine: sa.Engine) -> None:
    """Make the table and its triggers where they are missing. Raises StoreUnavailableError."""
    with writing(engine) as connection:
        fresh = not sa.inspect(connection).has_table(LEDGER.name)
        META.create_all(connection)
        if engine.dialect.name == "sqlite":
            for statement in _SQLITE:
                connection.exec_driver_sql(statement)
        elif fresh:
            for statement in _POSTGRES:
                # No parameters: else the driver would read the function's % as a place for one.
                connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def grant_application(engine: sa.Engine, role: str) -> None:
    """PostgreSQL: let a role read and append, and nothing else. Raises ValueError for an odd role name."""
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", role):
        raise ValueError(f"{role!r}: a role's name is lower-case letters, digits and underscores")
    with writing(engine) as connection:
        connection.exec_driver_sql(f"REVOKE ALL ON audit_ledger FROM {role}, PUBLIC")
        connection.exec_driver_sql(f"GRANT SELECT, INSERT ON audit_ledger TO {role}")


def missing_triggers(engine: sa.Engine) -> list[str]:
    """Names of triggers that are gone or switched off."""
    if engine.dialect.name == "sqlite":
        select = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'audit_ledger'"
    else:
        select = "SELECT tgname FROM pg_trigger WHERE tgrelid = 'audit_ledger'::regclass AND tgenabled = 'A'"
    with reading(engine) as connection:
        found = {name for (name,) in connection.exec_driver_sql(select)}
    return [name for name in TRIGGERS if name not in found]
