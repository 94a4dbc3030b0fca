"""What an agent named or printed is shown to an operator, never obeyed by the terminal or by our own markup."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from cli import views
from cli.following import tell
from cli.plain import cell, one_line, safe


def shown(renderable: object) -> str:
    out = io.StringIO()
    Console(file=out, width=200, highlight=False, color_system=None).print(renderable)
    return out.getvalue()


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\rb", r"a\x0db"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\udcff", r"\udcff"),
        ("a\u2028b", r"a\u2028b"),
        ("grün ✓ 漢字", "grün ✓ 漢字"),
    ],
)
def test_what_a_terminal_would_obey_is_made_visible(text, seen):
    assert safe(text) == seen


def test_line_breaks_stay_in_text_and_are_escaped_on_a_line():
    assert safe("a\nb\tc") == "a\nb\tc"
    assert one_line("a\nb\tc") == r"a\nb\tc"


@pytest.mark.parametrize("name", ["challenge/[/red]", "[red]hidden", "[bold", r"\[/]", "[link=x]y[/link]"])
def test_names_that_look_like_markup_are_shown_whole(name):
    assert name in shown(views.table("Changes", [{"path": name}], ["path"]))
    assert name in shown(cell(name))


def test_progress_shows_hostile_words_whole(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr("cli.following.messages", Console(file=out, width=200, highlight=False, color_system=None))
    tell("exec [/red] \x1b[31m", False, 1.0, b"last \x1b]8;;http://x\x07 [/] line\n")
    assert r"exec [/red] \x1b[31m" in out.getvalue()
    assert "[/] line" in out.getvalue()
    assert "\x1b" not in out.getvalue()


@given(st.text(max_size=200))
def test_no_text_breaks_a_table_or_reaches_the_terminal_raw(text):
    out = shown(views.table("T", [{"a": text}], ["a"]))
    assert not any(ord(c) < 32 and c != "\n" for c in out)


def test_a_record_that_has_not_ended_says_so():
    value = {"attempt_id": "att_1", "challenge_id": "c", "agent_id": "a", "outcome": None, "fault": None, "sandbox": {}}
    text = shown(views.record_table(value))
    assert "not ended yet" in text
    assert "None" not in text


def test_a_record_says_what_its_events_lack_and_what_was_doubtful():
    value = {
        "attempt_id": "att_1",
        "challenge_id": "c",
        "agent_id": "a",
        "outcome": "OOM_KILLED",
        "fault": "AGENT",
        "sandbox": {"telemetry_events": 90, "telemetry_gaps": 0, "trace_dropped": 0, "trace_incomplete": False},
    }
    whole = shown(views.record_table(value))
    assert "90" in whole
    assert not any(word in whole for word in ("incomplete", "withheld", "80 %"))
    value["sandbox"] |= {"telemetry_gaps": 2, "trace_dropped": 7, "disk_high": True, "suspect_files": 3}
    value["sandbox"]["runtime_panic"] = "panic: nil\n\ngoroutine 1\x1b[31m"
    text = shown(views.record_table(value))
    assert "90 (incomplete: 2 gaps, 7 dropped by the sandbox's kernel)" in text
    assert "was more than 80 % full" in text
    assert "3 files that may be half written" in text
    assert "panic: nil" in text
    assert "goroutine" not in text
    value["sandbox"] |= {"telemetry_gaps": 0, "trace_dropped": 0, "trace_incomplete": True}
    assert "90 (incomplete: some of what ran could not be told)" in shown(views.record_table(value))
