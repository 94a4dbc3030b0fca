"""Telemetry events: their fields, how one is built, and how one is read back from an untrusted line.

One event is one JSON object on one line. Field names are the specification's; `kind`, `attempt_id` and `sequence`
stand on every event. Sequences count from 1 per attempt and kind. A loss is a gap record: it takes no number of its
own, `first` and `last` are the numbers that are missing; with an unknown length `last` is null and `first` is the
number that the next event takes. Owns no file and no transport.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from json import encoder
from typing import Any, Literal, NotRequired, TypedDict, get_args

Kind = Literal["tool_invocation", "process", "filesystem", "resource", "escape_attempt"]
KINDS: tuple[Kind, ...] = get_args(Kind)
FIRST_SEQUENCE = 1
# First bytes of a command's output, stdout and stderr in arrival order, that an event keeps.
RESULT_SUMMARY_BYTES = 1_024
COMMAND_LINE_BYTES = 4_096
# One spooled line, its newline included; well under the 1 MiB that a batch may hold.
MAX_LINE_BYTES = 256 * 1_024


class EventError(ValueError):
    """A line that is no event; the message says what is wrong with it."""


class ToolInvocation(TypedDict):
    """One call of the agent. `arguments` holds argv or the call's fields; bytes stand as digest and size."""

    timestamp_ns: int
    tool_name: str
    arguments: dict[str, Any]
    result_summary: str
    duration_ms: float
    exit_code: int | None
    signal: int | None
    timed_out: bool
    truncated: bool
    output_bytes: int


ProcessEvent = Literal["process_spawn", "process_exit", "signal_delivery"]


class Process(TypedDict):
    """A process began, ended or was signalled. `exit_code` is null unless it exited.

    `timestamp_ns` is the recorder's clock, `guest_time_ns` the sandbox's. A signal's `pid` is its target as in
    kill(2): a process, a negative group, 0 for the sender's group, -1 for everybody; `sender_pid` is absent when no
    process sent it, `reason` says why the platform did. `inferred` marks what was concluded, not told;
    `unnamed` a program of which no argument could be told.
    """

    timestamp_ns: int
    event: ProcessEvent
    pid: int
    ppid: int | None
    command_line: str
    exit_code: int | None
    cpu_time_ms: float | None
    peak_rss_bytes: int | None
    signal: NotRequired[int]
    forked: NotRequired[bool]
    command_line_sha256: NotRequired[str]
    guest_time_ns: NotRequired[int]
    sender_pid: NotRequired[int]
    reason: NotRequired[str]
    inferred: NotRequired[bool]
    unnamed: NotRequired[bool]


class Filesystem(TypedDict):
    """A path below /workspace changed.

    Size and hash are those found when the path had been quiet for a moment; null when it was gone or too large by
    then, and on the CREATE of a file whose MODIFY follows. `file_type` is absent for regular files. `path_bytes`
    (base64) stands beside a path that is no UTF-8. `source` is `rescan` for what only a listing found while the
    attempt ran, `reconcile` for what the final comparison found. `merged` marks what happened at least once: the host's
    kernel keeps one of equal reports that nobody has read yet.
    """

    timestamp_ns: int
    event_type: Literal["CREATE", "MODIFY", "DELETE", "MOVED_FROM", "MOVED_TO"]
    file_path: str
    file_size_bytes: int | None
    content_hash_sha256: str | None
    source: NotRequired[Literal["reconcile", "rescan"]]
    merged: NotRequired[Literal[True]]
    path_bytes: NotRequired[str]
    file_type: NotRequired[Literal["dir", "symlink", "fifo", "socket", "char", "block"]]


class Resource(TypedDict):
    """One sample. Percent of one CPU; bytes; counts. Disk counters are totals since the sandbox began."""

    timestamp_ns: int
    cpu_usage_percent: float
    memory_rss_bytes: int
    memory_cache_bytes: int
    disk_read_bytes: int
    disk_write_bytes: int
    pids_current: int | None
    oom_kill_count: int


class EscapeAttempt(TypedDict):
    """A denied system call. `result` is an errno name or `killed`.

    One event may stand for `count` calls of the same name and result; without it, for one. The other fields are then
    those of the last.
    """

    timestamp_ns: int
    syscall: str
    pid: int
    command_line: str
    result: str
    guest_time_ns: NotRequired[int]
    inferred: NotRequired[bool]
    count: NotRequired[int]


class GapRange(TypedDict):
    """What is missing, and why."""

    first: int
    last: int | None
    reason: str


class Gap(TypedDict):
    """A loss, said."""

    kind: str
    attempt_id: str
    gap: GapRange


# Made once: `json.dumps` and `json.loads` would make or guess as much again on every call. The encoder itself makes its
# C part anew for each value, half of an event's cost: `_fragments` is that part, kept. Without its memory of what it is
# inside of, a value that holds itself ends as a RecursionError.
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_fragments: Callable[[Any, int], Iterable[str]] = encoder.c_make_encoder(  # type: ignore[attr-defined]
    None, _ENCODER.default, encoder.encode_basestring_ascii, None, ":", ",", False, False, False
)
_DECODER = json.JSONDecoder()
_scan: Callable[[str, int], tuple[Any, int]] = _DECODER.scan_once  # type: ignore[attr-defined]
_MAX_INTEGER = 2**63 - 1
_MAX_NAME = 128
_MAX_REASON = 1_024


def encode(kind: str, attempt_id: str, sequence: int, fields: Mapping[str, Any]) -> bytes:
    """One event's line, newline included. `fields` is one of this module's TypedDicts, so never empty.

    Raises EventError when the line is longer than MAX_LINE_BYTES or holds what JSON cannot.
    """
    try:
        body = "".join(_fragments(fields, 0))
        line = f"{_head(kind, attempt_id)}{sequence},{body[1:]}\n".encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise EventError(f"{kind} event: {error}") from error
    if len(line) > MAX_LINE_BYTES:
        raise EventError(f"{kind} event of {len(line)} bytes; at most {MAX_LINE_BYTES} fit a line")
    return line


@lru_cache(maxsize=1_024)
def _head(kind: str, attempt_id: str) -> str:
    """How an event begins, up to its number."""
    return prefixes(kind, attempt_id)[0].decode("ascii")


def prefixes(kind: str, attempt_id: str) -> tuple[bytes, bytes]:
    """How a stream's lines begin as `encode` and `encode_gap` write them: an event's up to its number, a gap's.

    A spool file of a million lines is counted by them, without parsing each.
    """
    head = _ENCODER.encode({"kind": kind, "attempt_id": attempt_id})[:-1].encode("ascii")
    return head + b',"sequence":', head + b',"gap":'


def gap(kind: str, attempt_id: str, first: int, last: int | None, reason: str) -> Gap:
    """A gap record: the numbers first..last are missing; `last` None when nobody knows how many."""
    return {"kind": kind, "attempt_id": attempt_id, "gap": {"first": first, "last": last, "reason": reason}}


def encode_gap(record: Gap) -> bytes:
    """A gap record's line, newline included."""
    return _ENCODER.encode(record).encode("ascii") + b"\n"


def is_gap(line: Mapping[str, Any]) -> bool:
    """Whether a decoded line is a gap record."""
    return "gap" in line


def decode(line: bytes) -> dict[str, Any]:
    """The event or gap record of one untrusted line. Raises EventError."""
    if len(line) > MAX_LINE_BYTES:
        raise EventError(f"a line of {len(line)} bytes; at most {MAX_LINE_BYTES} are allowed")
    try:
        value = _parsed(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise EventError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise EventError(f"a JSON object is expected, not {type(value).__name__}")
    if value.get("kind") not in KINDS:
        raise EventError(f"kind: one of {', '.join(KINDS)} is expected")
    attempt_id = value.get("attempt_id")
    if type(attempt_id) is not str or not 1 <= len(attempt_id) <= _MAX_NAME:
        raise EventError(f"attempt_id: a text of 1 to {_MAX_NAME} characters is expected")
    if is_gap(value):
        _check_gap(value)
        return value
    sequence, timestamp_ns = value.get("sequence"), value.get("timestamp_ns")
    if type(sequence) is not int or not FIRST_SEQUENCE <= sequence <= _MAX_INTEGER:
        raise EventError(f"sequence: an integer from {FIRST_SEQUENCE} is expected")
    if type(timestamp_ns) is not int or not 0 <= timestamp_ns <= _MAX_INTEGER:
        raise EventError("timestamp_ns: an integer from 0 is expected")
    return value


def _parsed(text: str) -> Any:
    """The JSON value of a text. Raises ValueError, RecursionError.

    A line of `encode`'s is one object and nothing around it: looking for white space costs as much as a fourth of it.
    """
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        end = -1
    return value if end == len(text) else _DECODER.decode(text)


def _is_number(value: Any, least: int) -> bool:
    return type(value) is int and least <= value <= _MAX_INTEGER


def _check_gap(value: dict[str, Any]) -> None:
    missing = value["gap"]
    if value.keys() != {"kind", "attempt_id", "gap"} or not isinstance(missing, dict):
        raise EventError("gap: only kind, attempt_id and the gap object are expected")
    if missing.keys() != {"first", "last", "reason"}:
        raise EventError("gap: first, last and reason are expected")
    last = missing["last"]
    if not _is_number(missing["first"], FIRST_SEQUENCE):
        raise EventError(f"gap.first: an integer from {FIRST_SEQUENCE} is expected")
    if last is not None and not (_is_number(last, FIRST_SEQUENCE) and last >= missing["first"]):
        raise EventError("gap.last: null or an integer from gap.first is expected")
    if type(missing["reason"]) is not str or len(missing["reason"]) > _MAX_REASON:
        raise EventError(f"gap.reason: a text of at most {_MAX_REASON} characters is expected")


def sequence_problems(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """What breaks the promise that events and gaps of one attempt and kind count without a hole, in order."""
    problems: list[str] = []
    expected = FIRST_SEQUENCE
    for index, line in enumerate(lines):
        if is_gap(line):
            first, last = line["gap"]["first"], line["gap"]["last"]
            if first != expected:
                problems.append(f"line {index}: a gap from {first}, expected {expected}")
            expected = first if last is None else last + 1
        else:
            if line["sequence"] != expected:
                problems.append(f"line {index}: sequence {line['sequence']}, expected {expected}")
            expected = line["sequence"] + 1
    return problems
