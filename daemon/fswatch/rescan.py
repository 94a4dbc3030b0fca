"""Finding again: what changed in a workspace while nobody watched it, compared with what had been told. Blocking.

Reads the upper layer, which holds all that the agent changed, while the agent may go on changing it: what this misses
is found by the watch that stands already, or at the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from daemon.fswatch.changes import CREATE, DELETE, MODIFY, RESCAN, Change, Content
from daemon.fswatch.content import LiveBudget, Workspace
from daemon.fswatch.events import GONE, Told
from daemon.fswatch.reconcile import Before, content_of

# An agent cannot make character devices: one in the upper layer stands for a path that was removed.
_WHITEOUT = "char"


def found_again(
    upper: Path, workspace: Workspace, told: Mapping[bytes, Told], before: Before, budget: LiveBudget
) -> Iterator[Change]:
    """Each difference between the workspace now and what was told of it, with its content."""
    layer = Workspace(upper)
    try:
        for path, _ in layer.walk(b""):
            content = layer.look(path, budget)
            if content is not None:
                change = _compare(path, content, told.get(path), before)
                if change is not None:
                    yield change
    finally:
        layer.close()
    for path, known in told.items():
        if known != GONE and not workspace.exists(path):
            yield _change(DELETE, path, None)


def _compare(path: bytes, content: Content, known: Told | None, before: Before) -> Change | None:
    entry = before.get(path)
    if content.type == _WHITEOUT:
        # What was told to be there is looked for below.
        return _change(DELETE, path, None) if known is None and entry is not None else None
    if known is None and entry is not None:
        old = content_of(entry)
        known = Told(old.type, old.size, old.sha256)
    if known is None or known == GONE:
        return _change(CREATE, path, content)
    same = (known.type, known.size) == (content.type, content.size)
    # Without a hash (the budget is spent) the same size has to do until the end.
    if same and (content.sha256 in (None, known.sha256)):
        return None
    return _change(MODIFY, path, content)


def _change(operation: int, path: bytes, content: Content | None) -> Change:
    directory = content is not None and content.type == "dir"
    return Change(time.time_ns(), operation, path, directory, RESCAN, content)
