"""Which recorded events are calls to play again, which bytes they name, and what makes a replay impossible."""

from __future__ import annotations

from typing import Any

import pytest

from formats.event import gap
from formats.replay import Content, ReplayError, contents_of, recorded_calls

WRITTEN = {"sha256": "sha256:" + "a" * 64, "size_bytes": 3, "stored": True}
CONTENT = Content("sha256:" + "a" * 64, 3, True)


def event(number: int, name: str, arguments: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "kind": "tool_invocation", "attempt_id": "att_1", "sequence": number, "timestamp_ns": number * 10**9,
        "tool_name": name, "arguments": arguments, "duration_ms": 1.5, "exit_code": 0, "signal": None, **fields,
    }  # fmt: skip


def test_calls_come_in_the_order_of_their_start_not_of_their_end() -> None:
    late = event(2, "exec", {"argv": ["sleep", "5"], "exec_id": "exe_1"}, timestamp_ns=1)
    calls = recorded_calls([event(1, "stat", {"path": "challenge"}), late])
    assert [(call.number, call.verb) for call in calls] == [(2, "exec"), (1, "stat")]
    assert (calls[0].began_ns, calls[0].ended_ns) == (1, 1_500_001)


def test_programs_of_tools_bin_are_no_calls_even_under_a_verbs_name() -> None:
    told = {"command_line": "stat /x", "pid": 7, "ppid": 1}
    assert recorded_calls([event(1, "hello", told), event(2, "stat", told), event(3, "exec", told)]) == []
    assert contents_of(event(1, "stat", {**told, "content": WRITTEN})) == {}


def test_written_bytes_and_input_are_named_by_digest_and_leave_the_arguments() -> None:
    (write,) = recorded_calls([event(1, "write_file", {"path": "a", "mode": 0o600, "content": WRITTEN})])
    assert (write.contents, write.arguments) == ({"content": CONTENT}, {"path": "a", "mode": 0o600})
    (run,) = recorded_calls([event(1, "exec", {"argv": ["cat"], "exec_id": "exe_1", "stdin": WRITTEN})])
    assert run.contents == {"stdin": CONTENT}


def test_arguments_too_large_for_an_event_are_bytes_themselves() -> None:
    other = {"sha256": "sha256:" + "b" * 64, "size_bytes": 40_000, "stored": True}
    (run,) = recorded_calls([event(1, "exec", {"truncated": True, "preview": "{", **other, "stdin": WRITTEN})])
    assert run.contents == {"stdin": CONTENT, "arguments": Content("sha256:" + "b" * 64, 40_000, True)}
    assert run.arguments == {}


def test_a_digest_in_a_callers_own_words_names_nothing() -> None:
    argv = ["echo", '{"sha256":"sha256:' + "a" * 64 + '"}', "sha256:" + "a" * 64]
    environment = {"stdin": "sha256:" + "a" * 64}
    assert contents_of(event(1, "exec", {"argv": argv, "exec_id": "exe_1", "environment": environment})) == {}
    assert contents_of(event(1, "read_file", {"path": "sha256:" + "a" * 64})) == {}


def test_what_the_end_cut_off_has_no_end_of_its_own() -> None:
    (cut,) = recorded_calls([event(1, "exec", {"argv": ["x"], "exec_id": "e"}, exit_code=None)])
    (killed,) = recorded_calls([event(1, "exec", {"argv": ["x"], "exec_id": "e"}, exit_code=None, signal=9)])
    assert (cut.ended_by_itself, killed.ended_by_itself) == (False, True)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (gap("tool_invocation", "att_1", 2, 5, "spool_full"), "missing from the events .spool_full."),
        (event(2, "exec", {"argv": ["x"], "exec_id": "e", "adopted": True}), "call 2 was taken over by a restarted"),
        (
            event(2, "write_file", {"path": "a", "content": {**WRITTEN, "stored": False}}),
            "call 2: the bytes of its content .sha256:a+. were not kept",
        ),
    ],
)
def test_what_cannot_be_played_faithfully_is_not_played(broken: dict[str, Any], words: str) -> None:
    with pytest.raises(ReplayError, match=words):
        recorded_calls([event(1, "stat", {"path": "a"}), broken])
