"""Denied calls to events, in bounded number and exact count.

The first of an attempt are told one by one. From then on calls of one name and result within a window become one
event whose `count` says how many; the window doubles while the flood lasts. The sum of all counts is exact (an event
without `count` stands for one), so it can be read back from the spool after a restart. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from daemon.trace.facts import Denied
from formats import event

WHOLE = 100
FIRST_WINDOW_NS = 1_000_000_000
LONGEST_WINDOW_NS = 64_000_000_000
MAX_KEYS = 64


@dataclass(slots=True)
class _Bucket:
    count: int
    last: Denied


class EscapeCounter:
    """One attempt's denied calls. `total` is exact; `told` is how many events there are."""

    def __init__(self, total: int = 0, told: int = 0) -> None:
        """Go on from what the spool holds."""
        self.total = total
        self.told = told
        self._buckets: dict[tuple[str, str], _Bucket] = {}
        self._window_ns = FIRST_WINDOW_NS
        self._due_ns = 0

    def add(self, denied: Denied, now_ns: int) -> list[event.EscapeAttempt]:
        """Count one call; the events to tell now."""
        self.total += 1
        if self.told < WHOLE:
            self.told += 1
            return [_event(denied, now_ns, 1)]
        if not self._buckets:
            self._due_ns = now_ns + self._window_ns
        key = (denied.syscall, denied.result)
        if key not in self._buckets and len(self._buckets) >= MAX_KEYS:
            key = (denied.syscall, "")
        bucket = self._buckets.get(key)
        if bucket is None:
            self._buckets[key] = _Bucket(1, denied)
        else:
            bucket.count += 1
            bucket.last = denied
        return self.due(now_ns)

    def due(self, now_ns: int) -> list[event.EscapeAttempt]:
        """The counted calls, when their window is over."""
        if not self._buckets or now_ns < self._due_ns:
            return []
        self._window_ns = min(self._window_ns * 2, LONGEST_WINDOW_NS)
        return self.flush(now_ns)

    def flush(self, now_ns: int) -> list[event.EscapeAttempt]:
        """The counted calls, now."""
        events = [_event(bucket.last, now_ns, bucket.count) for bucket in self._buckets.values()]
        self._buckets.clear()
        self.told += len(events)
        return events


def _event(denied: Denied, now_ns: int, count: int) -> event.EscapeAttempt:
    fields: event.EscapeAttempt = {
        "timestamp_ns": now_ns,
        "syscall": denied.syscall,
        "pid": denied.pid,
        "command_line": denied.command_line,
        "result": denied.result,
        "guest_time_ns": denied.guest_time_ns,
    }
    if denied.inferred:
        fields["inferred"] = True
    if count > 1:
        fields["count"] = count
    return fields
