"""Whether a sequence of filesystem changes can have happened, as they are told, in that order."""

from __future__ import annotations

from collections.abc import Iterable

Step = tuple[str, bytes, bool]  # event type, path, whether it is a directory


def impossible(steps: Iterable[Step], before: dict[bytes, bool]) -> list[str]:
    """What cannot have been. `before`: paths that were there, and whether each is a directory."""
    tree = dict(before)
    problems: list[str] = []
    moving: dict[bytes, bool] | None = None
    for number, (kind, path, directory) in enumerate(steps):
        above = path.rpartition(b"/")[0]
        wrong = []
        if above and not tree.get(above, False):
            wrong.append("no such directory")
        if kind == "CREATE" and path in tree:
            wrong.append("is there already")
        if kind in ("DELETE", "MODIFY", "MOVED_FROM") and path not in tree:
            wrong.append("is not there")
        below = {other: kept for other, kept in tree.items() if other.startswith(path + b"/")}
        if kind == "DELETE" and below:
            wrong.append("is not empty")
        if kind == "MOVED_TO" and moving is None:
            wrong.append("came from nowhere")
        if kind == "MOVED_FROM":
            moving = {other[len(path) :]: kept for other, kept in below.items()}
        if kind in ("DELETE", "MOVED_FROM"):
            for other in (path, *below):
                tree.pop(other, None)
        elif kind in ("CREATE", "MOVED_TO"):
            tree[path] = directory
            if kind == "MOVED_TO" and moving is not None:
                tree |= {path + other: kept for other, kept in moving.items()}
                moving = None
        problems += [f"{number}: {kind} {path!r} {what}" for what in wrong]
    return problems
