"""Event lines for tests."""

from __future__ import annotations

from formats import event

START_NS = 1_800_000_000_000_000_000


def sample(number: int, timestamp_ns: int | None = None) -> event.Resource:
    """A resource sample that can be told from its neighbours."""
    return {
        "timestamp_ns": START_NS + number * 1_000 if timestamp_ns is None else timestamp_ns,
        "cpu_usage_percent": 12.5,
        "memory_rss_bytes": number,
        "memory_cache_bytes": 0,
        "disk_read_bytes": 0,
        "disk_write_bytes": 0,
        "pids_current": 1,
        "oom_kill_count": 0,
    }


def line(number: int, attempt_id: str = "att_1", kind: str = "resource", timestamp_ns: int | None = None) -> bytes:
    """One event's line without its newline; `number` is its sequence."""
    return event.encode(kind, attempt_id, number, sample(number, timestamp_ns)).rstrip(b"\n")


def lines(first: int, count: int, attempt_id: str = "att_1", kind: str = "resource") -> list[bytes]:
    """`count` lines from a sequence on."""
    return [line(number, attempt_id, kind) for number in range(first, first + count)]


def gap_line(
    first: int, last: int | None, attempt_id: str = "att_1", kind: str = "resource", reason: str = "test"
) -> bytes:
    """One gap record's line without its newline."""
    return event.encode_gap(event.gap(kind, attempt_id, first, last, reason)).rstrip(b"\n")
