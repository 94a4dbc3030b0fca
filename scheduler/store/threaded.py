"""The bridge from the event loop to the blocking store: one thread, in order of arrival.

One thread is all that a single writer needs, it keeps SQLite free of lock waits, and makes the order of transactions
the order of the calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class StoreThread:
    """Runs blocking calls, one after the other."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The function's result. A caller that is cancelled does not undo the call."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(function, *args, **kwargs))

    def close(self) -> None:
        """Wait for what was asked, then end the thread."""
        self._pool.shutdown(wait=True)
