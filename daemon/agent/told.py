"""Which commands' events an earlier life has written: read from the spool, since the journal is crossed out later."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from formats import event


def told_execs(spool: Path, wanted: Collection[str]) -> set[str]:
    """Those of `wanted` (exec ids) whose event is in an attempt's spool of tool calls. Blocking; raises OSError."""
    found: set[str] = set()
    if not wanted or not spool.exists():
        return found
    with spool.open("rb") as lines:
        for line in lines:
            arguments = _arguments(line) if b"exec_id" in line else {}
            found.update(exec_id for exec_id in wanted if _names(arguments, exec_id))
    return found


def _arguments(line: bytes) -> Mapping[str, Any]:
    """A call's arguments; none for a line that is no event, which the store will say."""
    try:
        arguments = event.decode(line).get("arguments")
    except event.EventError:
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _names(arguments: Mapping[str, Any], exec_id: str) -> bool:
    """Of arguments that were too long for an event the beginning is kept, and the id stands first in it."""
    beginning = json.dumps({"exec_id": exec_id}, separators=(",", ":"))[:-1]
    return arguments.get("exec_id") == exec_id or str(arguments.get("preview", "")).startswith(beginning + ",")
