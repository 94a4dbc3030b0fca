"""How setup speaks: one line a step on stderr, the time of slow ones, one clear end on failure.

Owns the wording only; it decides nothing.
"""

import contextlib
import sys
import time
from collections.abc import Iterator

SLOW_SECONDS = 2.0
"""A step longer than this says how long it took."""


class SetupError(Exception):
    """Setup cannot go on. `problem` says what is wrong, `remedy` the one thing to do about it."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem}\n  to do: {remedy}")
        self.problem = problem
        self.remedy = remedy


def say(part: str, text: str) -> None:
    """Print one line about one part of the machine."""
    print(f"setup: {part:<14} {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def slow_step(part: str, text: str) -> Iterator[None]:
    """Announce a step that may take long and say afterwards how long it took."""
    say(part, f"{text} …")
    begun = time.monotonic()
    yield
    seconds = time.monotonic() - begun
    if seconds >= SLOW_SECONDS:
        say(part, f"{text}: done in {seconds:.0f} s")
