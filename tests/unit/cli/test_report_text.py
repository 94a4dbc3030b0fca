"""The readable report: failures with the beginning of their messages, and nothing that commands a terminal."""

from __future__ import annotations

from cli.reports import failed_lines


def test_failed_tests_are_listed_with_the_beginning_of_their_messages() -> None:
    tests = [
        {"id": "a::ok", "outcome": "passed", "message": "", "duration_ms": 1},
        {"id": "a::bad", "outcome": "failed", "message": "one\ntwo\nthree\nfour", "duration_ms": 1},
        {"id": "a::gone", "outcome": "failed", "message": None, "duration_ms": 0},
    ]
    lines = failed_lines({"visible": {"tests": tests}})
    assert lines == ["  visible: a::bad failed", *(f"      {word}" for word in ("one", "two", "three")),
                     "  visible: a::gone failed"]  # fmt: skip


def test_what_a_test_says_commands_no_terminal() -> None:
    tests = [{"id": "a::\x1b[2J", "outcome": "failed", "message": "\x1b]0;owned\x07 \u202e"}]
    assert all(line.isprintable() for line in failed_lines({"visible": {"tests": tests}}))
