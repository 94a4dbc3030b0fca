"""Taking an entry and putting it to use: a claim that races with an entry's death gets another one or starts cold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from daemon.pool.entry import PoolEntry
from daemon.pool.manager import PoolManager
from daemon.pool.template import Template
from daemon.supervisor.errors import SupervisorGone

T = TypeVar("T")


class PoolExhausted(Exception):
    """No warm entry is ready and the caller would not wait for a cold one."""


@dataclass(frozen=True, slots=True)
class Acquired(Generic[T]):
    """An entry in use, where it came from, and what `use` made of it."""

    entry: PoolEntry
    launch_type: Literal["WARM", "COLD"]
    result: T


async def acquire(
    pools: PoolManager, template: Template, use: Callable[[PoolEntry], Awaitable[T]], *, warm_only: bool = False
) -> Acquired[T]:
    """Give `use` (the assignment) a never-used entry. Whatever it raises retires the entry.

    SupervisorGone from `use` on a warm entry means that it died in our hands: the next one is tried, then a cold one.
    Raises PoolExhausted (only with `warm_only`), EntryFailed, and what `use` raises.
    """
    while (entry := pools.take(template)) is not None:
        try:
            return Acquired(entry, "WARM", await use(entry))
        except SupervisorGone:
            pools.retire(entry)
        except BaseException:
            pools.retire(entry)
            raise
    if warm_only:
        raise PoolExhausted(f"no warm sandbox of stack {template.stack} is ready")
    entry = await pools.cold(template)
    try:
        return Acquired(entry, "COLD", await use(entry))
    except BaseException:
        pools.retire(entry)
        raise
