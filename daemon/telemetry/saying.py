"""Saying that something failed, without failing over it.

The disk that cannot take the spool may be the one that cannot take the log: a loop that keeps telemetry alive must
not end because its complaint could not be written.
"""

from __future__ import annotations

import contextlib
from typing import Any

import structlog

log = structlog.get_logger(__name__)


def say(level: str, event: str, **fields: Any) -> None:
    """Log one event at a level (`info`, `warning`, `error`, `critical`); a log that cannot be written is left."""
    with contextlib.suppress(OSError, ValueError):
        getattr(log, level)(event, **fields)
