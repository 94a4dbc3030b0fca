"""The audit ledger on SQLite and PostgreSQL: one INSERT and some SELECTs, and no other statement.

Appends are serialised: by SQLite's write lock, by an advisory lock on PostgreSQL, where a role that may not update
cannot lock the head row. The insert trigger refuses whatever slips through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from formats.canonical import Json
from records.database import reading, writing
from records.ledger import chain
from records.ledger.port import Entry, Ledger, Report
from records.ledger.schema import LEDGER, missing_triggers

# Any fixed number; it names this ledger among the database's advisory locks.
_LOCK = 7_305_806_221
_BATCH = 1_000
_COLUMNS = tuple(LEDGER.c)


class LedgerBrokenError(Exception):
    """An insert reported success and wrote nothing: the database is not the one this code expects."""


class SqlLedger(Ledger):
    """Appends and reads through one engine. The schema is `schema.create_schema`'s."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def append(self, attempt_id: str, record: Mapping[str, Json], *, revise: bool = False) -> Entry:
        """See Ledger."""
        encoded = chain.encode(attempt_id, record)
        with writing(self._engine) as connection:
            if self._engine.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            latest = self._one(connection, LEDGER.c.attempt_id == attempt_id, LEDGER.c.revision)
            head = self._one(connection, sa.true(), LEDGER.c.sequence)
            entry, new = chain.decide(attempt_id, encoded, latest, head, revise=revise)
            if new:
                values = {column.name: getattr(entry, column.name) for column in _COLUMNS}
                insert = sa.insert(LEDGER).values(values).execution_options(preserve_rowcount=True)
                if connection.execute(insert).rowcount != 1:
                    raise LedgerBrokenError(f"entry {entry.sequence} of {attempt_id} was not written")
            return entry

    def get(self, attempt_id: str, revision: int | None = None) -> Entry | None:
        """See Ledger."""
        wanted = LEDGER.c.attempt_id == attempt_id
        if revision is not None:
            wanted &= LEDGER.c.revision == revision
        with reading(self._engine) as connection:
            return self._one(connection, wanted, LEDGER.c.revision)

    @staticmethod
    def _one(connection: sa.Connection, wanted: sa.ColumnElement[bool], last: sa.Column[Any]) -> Entry | None:
        select = sa.select(*_COLUMNS).where(wanted).order_by(last.desc()).limit(1)
        row = connection.execute(select).one_or_none()
        return None if row is None else _entry(row)

    def entries(self, after_sequence: int = 0) -> Iterator[Entry]:
        """See Ledger."""
        while True:
            select = sa.select(*_COLUMNS).where(LEDGER.c.sequence > after_sequence)
            with reading(self._engine) as connection:
                rows = connection.execute(select.order_by(LEDGER.c.sequence).limit(_BATCH)).all()
            if not rows:
                return
            for row in rows:
                yield _entry(row)
            after_sequence = rows[-1].sequence

    def verify(self) -> Report:
        """See Ledger; also says which triggers are gone."""
        checker = chain.Checker()
        for name in missing_triggers(self._engine):
            checker.say(f"the trigger {name} is missing or switched off")
        for entry in self.entries(after_sequence=-(2**63)):
            checker.take(entry)
        return checker.report()

    def close(self) -> None:
        """See Ledger."""
        self._engine.dispose()


def _entry(row: sa.Row[Any]) -> Entry:
    return Entry(
        int(row.sequence),
        row.attempt_id,
        row.revision,
        bytes(row.record),
        row.previous_hash,
        row.entry_hash,
    )
