"""Programs whose execve the sentry could not send, found by its calls' numbers.

gVisor decides after the call's end whether a program runs: the end is a success for a file that is not there as well,
and a `sentry/execve` follows if the program runs and all its arguments, its path and its environment are UTF-8. What
does tell that a new program runs is its first call (ARCH_PRCTL, which no thread and no older program makes). An execve
that has ended, no event of it, and that call: a program ran untold. Its name and arguments are told by the call's
other point unless they are no UTF-8 themselves. A program that sets no thread storage (assembly) is not found here.
Pure; changes nothing but `Process.begun`.
"""

from __future__ import annotations

from daemon.trace.calls import ARCH_PRCTL, ARCH_SET_FS
from daemon.trace.facts import Begun, Process
from daemon.trace.points import Attempted, Called


def called(process: Process | None, point: Called) -> Begun | None:
    """An end of execve or arch_prctl; the program that runs untold, if that shows it."""
    if process is None or not point.ended:
        return None
    if point.sysno != ARCH_PRCTL:
        process.begun = None if point.errno else Begun()
        return None
    if point.errno or point.arguments[0] != ARCH_SET_FS:
        return None
    begun, process.begun = process.begun, None
    return begun


def attempted(process: Process | None, point: Attempted) -> None:
    """What the execve that has just ended was to run."""
    if process is not None and process.begun is not None:
        process.begun = Begun(point.path, point.argv)
