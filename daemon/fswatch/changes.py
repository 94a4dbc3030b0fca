"""What a source of changes hands on: one change of one path, and a batch of them. No I/O.

Operations have the bit values that fanotify and inotify share. The kernel merges what it has not delivered yet: one
record may say CREATE, MODIFY and DELETE of the same object. `in_order` takes it apart again.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

MODIFY = 0x2
MOVED_FROM = 0x40
MOVED_TO = 0x80
CREATE = 0x100
DELETE = 0x200
IS_DIRECTORY = 0x40000000
ENTERING = CREATE | MOVED_TO
LEAVING = DELETE | MOVED_FROM
WATCHED = MODIFY | ENTERING | LEAVING

EventType = Literal["CREATE", "MODIFY", "DELETE", "MOVED_FROM", "MOVED_TO"]
NAMES: dict[int, EventType] = {
    MODIFY: "MODIFY",
    MOVED_FROM: "MOVED_FROM",
    MOVED_TO: "MOVED_TO",
    CREATE: "CREATE",
    DELETE: "DELETE",
}
# What only a listing of a directory found: the kernel's own event came too early for a watch, or never.
RESCAN = "rescan"


class Content(NamedTuple):
    """What is at a path. `type` as in `formats.diff`; `sha256` None for what is no file, or was not hashed.

    `stable` is False when the file changed while it was read: its hash is none of any moment.
    """

    type: str
    size: int | None
    sha256: str | None
    stable: bool = True


class Change(NamedTuple):
    """One change. `time_ns` is wall clock, `path` relative to /workspace; `content` only where it is known already.

    `merged`: it happened at least once, and the kernel does not say how often.
    """

    time_ns: int
    operation: int
    path: bytes
    is_directory: bool
    source: str | None = None
    content: Content | None = None
    merged: bool = False


@dataclass(slots=True)
class Batch:
    """What one read of a source gave.

    `lost`: records whose place could not be found any more. `overflow`: the kernel threw away an unknown number.
    """

    changes: list[Change] = field(default_factory=list)
    lost: int = 0
    overflow: bool = False


class Source(abc.ABC):
    """The kernel's reports about one workspace. One thread at a time; `read` never waits.

    `patient`: reading a little later loses nothing and costs less, since the kernel merges what it holds.
    """

    patient = False

    @abc.abstractmethod
    def fileno(self) -> int:
        """The descriptor that becomes readable."""

    @abc.abstractmethod
    def read(self) -> Batch | None:
        """The next reports, in order; None when there are none now. Raises OSError."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of everything that holds the workspace mounted. Idempotent."""


def in_order(mask: int, exists: bool) -> list[int]:
    """The operations of a merged record, in the one order that ends as the path is now.

    Entering and leaving take turns: a path that is there was entered last, one that is gone was left last.
    """
    entering = [bit for bit in (CREATE, MOVED_TO) if mask & bit]
    leaving = [bit for bit in (MOVED_FROM, DELETE) if mask & bit]
    # The more frequent kind is first and last; with as many of each, the end decides.
    leave_first = len(leaving) > len(entering) or (exists and len(leaving) == len(entering))
    first, second = (leaving, entering) if leave_first else (entering, leaving)
    operations: list[int] = []
    for index in range(max(len(first), len(second))):
        operations += first[index : index + 1] + second[index : index + 1]
    if mask & MODIFY:
        # A file is written while it is there: behind the first time it came, or before it went.
        entered = [index for index, bit in enumerate(operations) if bit & ENTERING]
        place = (entered[-1] if exists else entered[0]) + 1 if entered else 0
        operations.insert(place, MODIFY)
    return operations
