"""How this room opens a database: one engine per database, SQLite (embedded) or PostgreSQL, set up for durability.

SQLite: WAL, synchronous FULL, foreign keys and recursive triggers on for every connection, writers begin IMMEDIATE
so that a lock is waited for and never upgraded. Owns no schema.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from records.errors import StoreUnavailableError

# A writer holds the lock for one batch, milliseconds; half a minute means that something is stuck.
BUSY_TIMEOUT_SECONDS = 30
POOL_SIZE = 8


class DatabaseUrlError(ValueError):
    """A database URL that cannot be used; the message says what to write instead."""


def open_engine(url: str, *, read_only: bool = False) -> sa.Engine:
    """An engine for `sqlite:////absolute/path` or `postgresql+psycopg://…`.

    With `read_only` every statement that writes is refused by the database itself. Raises DatabaseUrlError.
    """
    try:
        parsed = sa.make_url(url)
    except ArgumentError as error:
        raise DatabaseUrlError(f"{url!r} is no database URL; write sqlite:////absolute/path") from error
    if parsed.get_backend_name() == "sqlite":
        return _open_sqlite(parsed, read_only)
    if parsed.get_backend_name() != "postgresql":
        raise DatabaseUrlError(f"{parsed.get_backend_name()}: only sqlite and postgresql are supported")
    options = {"connect_timeout": 10}
    if read_only:
        options["options"] = "-c default_transaction_read_only=on"  # type: ignore[assignment]
    try:
        return sa.create_engine(
            parsed.set(drivername="postgresql+psycopg"),
            connect_args=options,
            pool_size=POOL_SIZE,
            # A restarted server must cost one reconnect, not one failed call for each pooled connection.
            pool_pre_ping=True,
        )
    except NoSuchModuleError as error:
        raise DatabaseUrlError(str(error)) from error


def _open_sqlite(url: sa.URL, read_only: bool) -> sa.Engine:
    path = Path(url.database or "")
    if not path.is_absolute():
        raise DatabaseUrlError(f"{str(url)!r}: write an absolute path, sqlite:////var/lib/…/events.db")
    if not path.parent.is_dir():
        raise DatabaseUrlError(f"{path.parent} is no directory; make it first")
    engine = sa.create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_SECONDS}, pool_size=POOL_SIZE)

    def connected(connection: sqlite3.Connection, _: Any) -> None:
        # The driver's own transactions begin DEFERRED and too late; ours are begun below.
        connection.isolation_level = None
        pragmas = ["journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "recursive_triggers=ON"]
        for pragma in pragmas + (["query_only=ON"] if read_only else []):
            connection.execute(f"PRAGMA {pragma}")

    def begun(connection: sa.Connection) -> None:
        options = connection.get_execution_options()
        if "sqlite_synchronous" in options:
            connection.exec_driver_sql(f"PRAGMA synchronous={options['sqlite_synchronous']}")
        connection.exec_driver_sql(f"BEGIN {options.get('sqlite_begin', 'DEFERRED')}")

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", begun)
    return engine


@contextmanager
def reading(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction that sees one state of the database. Raises StoreUnavailableError."""
    with _told(), engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield connection


@contextmanager
def writing(engine: sa.Engine, *, awaits_disk: bool = True) -> Iterator[sa.Connection]:
    """A transaction that writes, committed at the end or rolled back whole. Raises StoreUnavailableError.

    Without `awaits_disk` it survives the end of every process, ours and the server's, but a power failure within the
    next moments may undo it: for what somebody will tell again. Order is kept: nothing later survives without it.
    """
    synchronous = "FULL" if awaits_disk else "NORMAL"
    options = engine.execution_options(sqlite_begin="IMMEDIATE", sqlite_synchronous=synchronous)
    with _told(), options.begin() as connection:
        if not awaits_disk and engine.dialect.name == "postgresql":
            connection.exec_driver_sql("SET LOCAL synchronous_commit TO OFF")
        yield connection


@contextmanager
def _told() -> Iterator[None]:
    """Says which of the driver's errors mean "not now": a lost server, a locked or missing database."""
    try:
        yield
    except DBAPIError as error:
        if error.connection_invalidated or _passing(error.orig):
            raise StoreUnavailableError(str(error.orig)) from error
        raise
    except psycopg.Error as error:
        # By COPY, which goes past SQLAlchemy.
        if _passing(error):
            raise StoreUnavailableError(str(error)) from error
        raise
    except PoolTimeoutError as error:
        raise StoreUnavailableError(str(error)) from error


# Primary result codes: BUSY, LOCKED, READONLY, IOERR, FULL, CANTOPEN, PROTOCOL.
_SQLITE_PASSING = {5, 6, 8, 10, 13, 14, 15}


def _passing(error: BaseException | None) -> bool:
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        # The schema is made by another process, which may not have started yet.
        return code in _SQLITE_PASSING or "no such table" in str(error)
    state = getattr(error, "sqlstate", None)
    if state is None:
        return isinstance(error, psycopg.OperationalError)  # the connection failed
    # 08 connection, 57P server going down, 53 out of resources, 40 a conflict, 42P01 no such table,
    # 25006 a read-only transaction or server.
    return state[:2] in {"08", "53", "40"} or state[:3] == "57P" or state in {"42P01", "25006"}
