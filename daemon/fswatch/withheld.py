"""The list of files that no judge may see as the agent left them, kept beside the attempt's artifacts. Blocking."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path

from daemon.workspace.layout import write_whole

_FILE = "suspect_files.json"


def keep(artifacts: Path, paths: Iterable[bytes]) -> None:
    """Write the list into the attempt's artifacts directory, whole or not at all. Raises OSError."""
    write_whole(artifacts / _FILE, json.dumps([base64.b64encode(path).decode() for path in paths]).encode())


def load(artifacts: Path) -> tuple[bytes, ...] | None:
    """The list; None when none was written: the attempt did not crash, or its end goes on."""
    try:
        data = (artifacts / _FILE).read_bytes()
    except FileNotFoundError:
        return None
    return tuple(base64.b64decode(path) for path in json.loads(data))
