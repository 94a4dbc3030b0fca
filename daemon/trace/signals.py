"""Signals between the processes of one sandbox: from the call that sends one to its end, which says whether it went.

The target is looked at when the call begins: it may be gone when the call ends. A signal to a group cannot be matched
to one process, so no death is explained by it. Pure; bounded by MAX_PENDING.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from daemon.trace.calls import SIGSYS, Sent, signal_of
from daemon.trace.facts import Process
from daemon.trace.points import INIT, Called, Who
from formats import event

MAX_PENDING = 4_096
# From a signal that kills to the death it is far less, even on a host that is very busy.
DEATH_NS = 1_000_000_000


def explained(process: Process, number: int, guest_ns: int) -> bool:
    """Whether a call that we saw explains that a signal ended a process.

    For SIGSYS another process must have sent it, to this very one, just before: a process that has a handler for it,
    ignores or blocks it can send itself as many as it likes and then call what the filter kills for.
    """
    if number == SIGSYS:
        return process.sigsys_ns is not None and 0 <= guest_ns - process.sigsys_ns < DEATH_NS
    return bool(process.told >> number & 1)


class Signals:
    """Signals on their way. `processes` are the living ones by pid; who is sent one has it noted in `told`."""

    def __init__(self, processes: Mapping[int, Process], clock_ns: Callable[[], int]) -> None:
        self._processes = processes
        self._clock_ns = clock_ns
        self._sending: dict[int, tuple[Sent, str, int | None]] = {}

    def called(self, point: Called) -> list[event.Process]:
        """What one end of a call that sends a signal means."""
        who = point.who
        if not point.ended:
            sent = signal_of(point.sysno, point.arguments, who.pid)
            if sent is not None and len(self._sending) < MAX_PENDING:
                self._begin(who, sent)
            return []
        sent, line, ppid = self._sending.pop(who.tid, (None, "", None))
        if sent is None or point.errno:
            return []
        fields: event.Process = {
            "timestamp_ns": self._clock_ns(),
            "event": "signal_delivery",
            "pid": sent.target,
            "ppid": ppid,
            "command_line": line,
            "exit_code": None,
            "cpu_time_ms": None,
            "peak_rss_bytes": None,
            "signal": sent.number,
            "sender_pid": who.pid,
            "guest_time_ns": who.time_ns,
        }
        return [fields]

    def _begin(self, who: Who, sent: Sent) -> None:
        target = self._processes.get(sent.target)
        if target is None:
            if who.pid == INIT and sent.target > 0:
                return  # PID 1 to itself
        else:
            if who.pid == INIT and target.helper:
                return
            target.told |= 1 << sent.number
            if sent.number == SIGSYS and who.pid != target.pid:
                target.sigsys_ns = who.time_ns
        line, ppid = ("", None) if target is None else (target.command_line, target.ppid)
        self._sending[who.tid] = (sent, line, ppid)
