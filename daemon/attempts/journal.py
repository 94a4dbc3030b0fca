"""The daemon's journal: one row per attempt, so that a restart can adopt or void what an earlier life left.

A row is the whole of `AttemptFacts` as JSON: the journal is read only at start, and never queried by field. SQLite in
WAL mode with synchronous NORMAL survives the death of the process at any instruction; a host that lost power has
lost its sandboxes too, so nothing stronger is bought. Blocking: callers hand it to the bounded executor.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from daemon.attempts.model import (
    AttemptFacts,
    Cause,
    ClaimSpec,
    DatabaseSpec,
    Evidence,
    SentSignal,
    State,
    Usage,
    WorkspaceSummary,
)
from daemon.runtime.types import Resources

SCHEMA_VERSION = 1
# A few dozen rows are written and hardly ever read: SQLite's default of 2 MB would only fill with what is gone.
CACHE_KIB = 256


class JournalError(Exception):
    """The journal cannot be read; the message names the file and the remedy."""


class Journal:
    """Attempts of this node that are not released."""

    def __init__(self, path: Path) -> None:
        """Open or make the file. Raises JournalError for one of another version or a damaged one."""
        self._lock = threading.Lock()
        try:
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version not in (0, SCHEMA_VERSION):
                raise JournalError(f"{path}: journal version {version}, this daemon knows {SCHEMA_VERSION}")
            self._db.execute("CREATE TABLE IF NOT EXISTS attempts (attempt_id TEXT PRIMARY KEY, facts TEXT NOT NULL)")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS calls (attempt_id TEXT, exec_id TEXT, call TEXT NOT NULL,"
                " PRIMARY KEY (attempt_id, exec_id))"
            )
            self._db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        except sqlite3.DatabaseError as error:
            raise JournalError(f"{path}: {error}; move the file away to start without its attempts") from error

    def put(self, facts: AttemptFacts) -> None:
        """Keep an attempt as it now is."""
        text = json.dumps(_encode(facts), separators=(",", ":"))
        with self._lock:
            self._db.execute("INSERT OR REPLACE INTO attempts VALUES (?, ?)", (facts.attempt_id, text))

    def drop(self, attempt_id: str) -> None:
        """Forget a released attempt."""
        with self._lock:
            self._db.execute("DELETE FROM attempts WHERE attempt_id = ?", (attempt_id,))
            self._db.execute("DELETE FROM calls WHERE attempt_id = ?", (attempt_id,))

    def begin_call(self, attempt_id: str, exec_id: str, call: dict[str, Any]) -> None:
        """Keep what a running command was called with: its event is written when it ends, maybe by a later life."""
        with self._lock:
            row = (attempt_id, exec_id, json.dumps(call))
            self._db.execute("INSERT OR REPLACE INTO calls VALUES (?, ?, ?)", row)

    def end_call(self, attempt_id: str, exec_id: str) -> None:
        """The command's event is recorded."""
        with self._lock:
            self._db.execute("DELETE FROM calls WHERE attempt_id = ? AND exec_id = ?", (attempt_id, exec_id))

    def open_calls(self, attempt_id: str) -> dict[str, dict[str, Any]]:
        """Commands without an event, by exec id."""
        with self._lock:
            rows = self._db.execute("SELECT exec_id, call FROM calls WHERE attempt_id = ?", (attempt_id,)).fetchall()
        return {exec_id: json.loads(call) for exec_id, call in rows}

    def load(self) -> list[AttemptFacts]:
        """Every attempt that was not released."""
        with self._lock:
            rows = self._db.execute("SELECT facts FROM attempts ORDER BY attempt_id").fetchall()
        return [_decode(json.loads(text)) for (text,) in rows]

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()


def _encode(facts: AttemptFacts) -> dict[str, Any]:
    value = asdict(facts)
    value["state"] = facts.state.value
    value["evidence"]["cause"] = facts.evidence.cause.value if facts.evidence.cause else None
    return value


def _decode(value: dict[str, Any]) -> AttemptFacts:
    evidence = dict(value["evidence"])
    evidence["cause"] = Cause(evidence["cause"]) if evidence["cause"] else None
    evidence["signals"] = [SentSignal(**signal) for signal in evidence["signals"]]
    spec = dict(value["spec"])
    database = spec.get("database")
    spec["database"] = DatabaseSpec(**database) if database else None
    nested = {
        "spec": ClaimSpec(**spec),
        "state": State(value["state"]),
        "limits": Resources(**value["limits"]) if value["limits"] else None,
        "evidence": Evidence(**evidence),
        "usage": Usage(**value["usage"]),
        "workspace": WorkspaceSummary(**value["workspace"]) if value["workspace"] else None,
    }
    return AttemptFacts(**{**value, **nested})
