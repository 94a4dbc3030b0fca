"""The event store on SQLite and PostgreSQL: one schema, all of its SQL in this file.

The cursor moves in the transaction that stores the lines, so a killed collector stores a batch whole or not at all,
and a batch that is sent again changes nothing. Rows are keyed in reading order, so one index serves both. No foreign
key ties a row to its stream: the one way in writes both in one transaction, and the check cost as much as the row.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from records.database import reading, writing
from records.errors import SequenceGapError
from records.events import lines as rules
from records.events.port import DEFAULT_PAGE_SIZE, EventCounts, EventPage, EventQuery, EventStore

_META = sa.MetaData()
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

STREAMS = sa.Table(
    "event_streams",
    _META,
    sa.Column("stream_id", _ID, primary_key=True, autoincrement=True),
    sa.Column("attempt_id", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("node_id", sa.Text, nullable=False),
    sa.Column("next_line", sa.BigInteger, nullable=False),
    sa.Column("last_ns", sa.BigInteger, nullable=False),
    sa.Column("next_sequence", sa.BigInteger, nullable=False),
    sa.Column("events", sa.BigInteger, nullable=False),
    sa.Column("gaps", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("attempt_id", "kind"),
)
EVENTS = sa.Table(
    "events",
    _META,
    sa.Column("stream_id", _ID, primary_key=True),
    sa.Column("timestamp_ns", sa.BigInteger, primary_key=True),
    sa.Column("line", sa.BigInteger, primary_key=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)
_STATE = (
    STREAMS.c.next_line,
    STREAMS.c.last_ns,
    STREAMS.c.next_sequence,
    STREAMS.c.events,
    STREAMS.c.gaps,
)
# PostgreSQL takes a batch by COPY (which needs the right to INSERT, no other), in its binary form: half the CPU of a
# statement with arrays, on both sides. A header of signature, flags and extension; then for each row its number of
# fields, and each field as length and value; then the end. Source: PostgreSQL's documentation of COPY.
_COPY = "COPY events (stream_id, timestamp_ns, line, body) FROM STDIN (FORMAT BINARY)"
_COPY_BEGIN = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
_COPY_ROW = struct.Struct(">hiqiqiqi")
_COPY_END = struct.pack(">h", -1)


def create_schema(engine: sa.Engine) -> None:
    """Make the tables that are missing. Raises StoreUnavailableError."""
    with writing(engine) as connection:
        _META.create_all(connection)


class SqlEventStore(EventStore):
    """Appends and lists through one engine. The schema is `create_schema`'s."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._postgres = engine.dialect.name == "postgresql"

    def append(self, node_id: str, attempt_id: str, kind: str, first_line: int, lines: Sequence[bytes]) -> int:
        """See EventStore."""
        rules.check_stream(attempt_id, kind)
        with writing(self._engine) as connection:
            stream_id, state = self._lock_stream(connection, node_id, attempt_id, kind)
            if first_line > state.next_line:
                raise SequenceGapError(attempt_id, kind, first_line, state.next_line)
            fresh = lines[state.next_line - first_line :]
            if fresh:
                rows = [rules.take(state, attempt_id, kind, line) for line in fresh]
                self._insert(connection, stream_id, rows)
                values = {column.name: getattr(state, column.name) for column in _STATE}
                connection.execute(sa.update(STREAMS).where(STREAMS.c.stream_id == stream_id).values(values))
            return state.next_line

    def _lock_stream(
        self, connection: sa.Connection, node_id: str, attempt_id: str, kind: str
    ) -> tuple[int, rules.StreamState]:
        wanted = (STREAMS.c.attempt_id == attempt_id) & (STREAMS.c.kind == kind)
        select = sa.select(STREAMS.c.stream_id, *_STATE).where(wanted).with_for_update()
        found = connection.execute(select).one_or_none()
        if found is None:
            fresh = {column.name: getattr(rules.StreamState(), column.name) for column in _STATE}
            values = {"attempt_id": attempt_id, "kind": kind, "node_id": node_id, **fresh}
            if self._postgres:
                # Two collectors may meet a new stream at once: the second waits here and finds the first's row.
                connection.execute(postgresql.insert(STREAMS).values(values).on_conflict_do_nothing())
            else:
                connection.execute(sa.insert(STREAMS).values(values))
            found = connection.execute(select).one()
        return found[0], rules.StreamState(*found[1:])

    def _insert(self, connection: sa.Connection, stream_id: int, rows: Sequence[rules.Row]) -> None:
        if self._postgres:
            driver: Any = connection.connection.driver_connection
            with driver.cursor() as cursor, cursor.copy(_COPY) as copy:
                copy.write(_copied(stream_id, rows))
        else:
            connection.exec_driver_sql(
                "INSERT INTO events (stream_id, timestamp_ns, line, body) VALUES (?, ?, ?, ?)",
                [(stream_id, row.timestamp_ns, row.line, row.body) for row in rows],
            )

    def cursor(self, attempt_id: str, kind: str) -> int:
        """See EventStore."""
        rules.check_stream(attempt_id, kind)
        wanted = (STREAMS.c.attempt_id == attempt_id) & (STREAMS.c.kind == kind)
        with reading(self._engine) as connection:
            return connection.execute(sa.select(STREAMS.c.next_line).where(wanted)).scalar() or 0

    def list_events(self, query: EventQuery, *, page_size: int = DEFAULT_PAGE_SIZE, page_token: str = "") -> EventPage:
        """See EventStore."""
        size, after = rules.page_size(page_size), rules.position(page_token)
        rules.check_stream(query.attempt_id, query.kind or "resource")
        select = sa.select(STREAMS.c.stream_id, STREAMS.c.kind).where(STREAMS.c.attempt_id == query.attempt_id)
        if query.kind is not None:
            select = select.where(STREAMS.c.kind == query.kind)
        with reading(self._engine) as connection:
            streams = connection.execute(select).all()
            runs = [self._run(connection, id_, kind, query, after, size + 1) for id_, kind in streams]
        found = list(heapq.merge(*runs))[: size + 1]
        token = found[size - 1][0].token() if len(found) > size else ""
        return EventPage([body for _, body in found[:size]], token)

    def _run(
        self,
        connection: sa.Connection,
        stream_id: int,
        kind: str,
        query: EventQuery,
        after: rules.Position | None,
        limit: int,
    ) -> list[tuple[rules.Position, bytes]]:
        table = EVENTS.c
        select = sa.select(table.timestamp_ns, table.line, table.body).where(table.stream_id == stream_id)
        begin = rules.begin_after(after, kind)
        if begin is not None:
            select = select.where(sa.tuple_(table.timestamp_ns, table.line) > sa.tuple_(*map(sa.literal, begin)))
        if query.since_ns is not None:
            select = select.where(table.timestamp_ns >= query.since_ns)
        if query.until_ns is not None:
            select = select.where(table.timestamp_ns < query.until_ns)
        rows = connection.execute(select.order_by(table.timestamp_ns, table.line).limit(limit))
        return [(rules.Position(time, kind, line), bytes(body)) for time, line, body in rows]

    def counts(self, attempt_id: str) -> EventCounts:
        """See EventStore."""
        select = sa.select(STREAMS.c.kind, STREAMS.c.events, STREAMS.c.gaps)
        with reading(self._engine) as connection:
            rows = connection.execute(select.where(STREAMS.c.attempt_id == attempt_id)).all()
        return EventCounts(
            {kind: events for kind, events, _ in rows if events}, {kind: gaps for kind, _, gaps in rows if gaps}
        )

    def close(self) -> None:
        """See EventStore."""
        self._engine.dispose()


def _copied(stream_id: int, rows: Sequence[rules.Row]) -> bytes:
    """A batch as COPY reads it."""
    parts = [_COPY_BEGIN]
    for line, timestamp_ns, body in rows:
        parts.append(_COPY_ROW.pack(4, 8, stream_id, 8, timestamp_ns, 8, line, len(body)))
        parts.append(body)
    parts.append(_COPY_END)
    return b"".join(parts)
