"""Structured logs: one JSON object a line on stderr, with a stable snake_case `event` and no secret in it."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

_SECRET_KEY = re.compile(r"token|secret|password|authorization|api_?key", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"gst1\.att_[a-z0-9]+\.\d+\.[0-9a-f]+")
REDACTED = "[redacted]"


def redact(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Blank values under secret-looking keys, and tokens wherever they stand."""
    for key, value in event.items():
        if _SECRET_KEY.search(key) and value is not None:
            event[key] = REDACTED
        elif isinstance(value, str):
            event[key] = _SECRET_VALUE.sub(REDACTED, value)
    return event


def configure(service: str, level: int = logging.INFO) -> None:
    """Set up this process's logs; `service` stands on every line."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            redact,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)
