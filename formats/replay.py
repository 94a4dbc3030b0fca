"""What of an attempt's recorded events can be played again: the agent's calls in order, and the bytes they name.

Pure. Owns the reading of `tool_invocation` events as `daemon.telemetry.tool_calls` writes them: which ones are calls
of the agent's API (programs of `tools/bin` are told by the same kind, but are the doing of an exec), where digests of
written bytes stand, and what makes a faithful replay impossible. Where bytes are kept and who plays is elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from formats.event import is_gap

VERBS = frozenset({"exec", "write_file", "read_file", "list", "stat", "mkdir", "remove"})
# The keys under which the recorder puts references; no caller can choose a key at this level.
CONTENTS = ("stdin", "content")
ARGUMENTS = "arguments"


class ReplayError(Exception):
    """The events do not say enough to play them again; the message says which one and why."""


@dataclass(frozen=True)
class Content:
    """Bytes that an event names. `stored` is False when only their digest was kept."""

    digest: str
    size: int
    stored: bool


@dataclass(frozen=True)
class Call:
    """One recorded call. Times are nanoseconds of the node's wall clock.

    `arguments` are the call's fields without its contents; when they were too large for an event they are the content
    `arguments`. `ended_by_itself` is False for what the attempt's end cut off.
    """

    number: int
    verb: str
    arguments: Mapping[str, Any]
    contents: Mapping[str, Content]
    began_ns: int
    ended_ns: int
    exit_code: int | None
    signal: int | None

    @property
    def ended_by_itself(self) -> bool:
        """Whether an end of its own was seen."""
        return self.exit_code is not None or self.signal is not None


def contents_of(event: Mapping[str, Any]) -> dict[str, Content]:
    """The bytes that one tool_invocation event names: `stdin`, `content`, `arguments` (too large for the event)."""
    arguments = event.get("arguments")
    if not isinstance(arguments, Mapping) or not _of_the_api(str(event.get("tool_name")), arguments):
        return {}
    found = {name: _content(arguments[name]) for name in CONTENTS if name in arguments}
    if arguments.get("truncated") is True:
        found[ARGUMENTS] = _content(arguments)
    return found


def recorded_calls(events: Iterable[Mapping[str, Any]]) -> list[Call]:
    """The agent's calls in the order of their start. Raises ReplayError for what cannot be played faithfully."""
    calls = []
    for event in events:
        if is_gap(event):
            raise ReplayError(f"calls are missing from the events ({event['gap']['reason']})")
        arguments = event["arguments"]
        if not _of_the_api(event["tool_name"], arguments):
            continue
        if arguments.get("adopted"):
            raise ReplayError(
                f"call {event['sequence']} was taken over by a restarted daemon: its start is not recorded"
            )
        contents = contents_of(event)
        for name, content in contents.items():
            if not content.stored:
                raise ReplayError(f"call {event['sequence']}: the bytes of its {name} ({content.digest}) were not kept")
        calls.append(
            Call(
                number=event["sequence"],
                verb=event["tool_name"],
                arguments={} if ARGUMENTS in contents else _without(arguments, contents),
                contents=contents,
                began_ns=event["timestamp_ns"],
                ended_ns=event["timestamp_ns"] + int(event["duration_ms"] * 1e6),
                exit_code=event["exit_code"],
                signal=event["signal"],
            )
        )
    return sorted(calls, key=lambda call: (call.began_ns, call.number))


def _of_the_api(name: str, arguments: Mapping[str, Any]) -> bool:
    if name not in VERBS:
        return False
    return arguments.get("truncated") is True or ("argv" if name == "exec" else "path") in arguments


def _content(reference: Mapping[str, Any]) -> Content:
    return Content(str(reference["sha256"]), int(reference["size_bytes"]), bool(reference["stored"]))


def _without(arguments: Mapping[str, Any], contents: Mapping[str, Content]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name not in contents}
