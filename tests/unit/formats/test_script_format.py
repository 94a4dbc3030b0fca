"""Scripts of scripted agents."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.problems import FormatError
from formats.script import ExecStep, SubmitStep, WriteFileStep, parse_script


def test_steps_are_read_in_order_and_blank_lines_skipped():
    steps = parse_script(
        b'{"tool":"exec","argv":["ls"],"timeout_seconds":100000}\n\n'
        b'{"tool":"write_file","path":"a","content_base64":"/w=="}\n{"tool":"submit"}\n',
        "s.jsonl",
    )
    assert [type(step) for step in steps] == [ExecStep, WriteFileStep, SubmitStep]
    assert steps[1].data() == b"\xff"


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "1",
        '{"tool":"fly"}',
        '{"argv":["x"]}',
        '{"tool":"exec","argv":[]}',
        '{"tool":"exec","argv":["a"],"timeout_seconds":0}',
        '{"tool":"exec","argv":["a"],"timeout_seconds":NaN}',
        '{"tool":"exec","argv":["a"],"timeout_seconds":Infinity}',
        '{"tool":"exec","argv":["a"],"timeuot_seconds":1}',
        '{"tool":"write_file","path":"a"}',
        '{"tool":"write_file","path":"a","content":"a","content_base64":"YQ=="}',
        '{"tool":"write_file","path":"a","content_base64":"!"}',
        '{"tool":"wait","seconds":-1}',
        "[" * 100_000,
        r'{"tool":"exec","argv":["echo","\ud800"]}',
        r'{"tool":"exec","argv":["cat"],"stdin":"\udcff"}',
    ],
)
def test_a_bad_line_is_named(line):
    with pytest.raises(FormatError) as caught:
        parse_script(b'{"tool":"submit"}\n' + line.encode(), "s.jsonl")
    assert "line 2" in str(caught.value)
    assert "s.jsonl" in str(caught.value)


@given(st.binary(max_size=100))
def test_no_bytes_crash_the_reader(text):
    try:
        parse_script(text, "s")
    except FormatError as error:
        assert error.problems
