"""Event lines: built, read back from untrusted bytes, and their promise of numbers without a hole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats import event
from tests.support.events import gap_line, line, sample


def test_an_event_is_one_line_and_comes_back() -> None:
    text = event.encode("resource", "att_1", 7, sample(3))
    assert text.endswith(b"}\n")
    value = event.decode(text)
    assert value == {"kind": "resource", "attempt_id": "att_1", "sequence": 7, **sample(3)}
    assert not event.is_gap(value)


def test_a_gap_is_one_line_and_comes_back() -> None:
    value = event.decode(gap_line(3, None))
    assert value == {
        "kind": "resource",
        "attempt_id": "att_1",
        "gap": {"first": 3, "last": None, "reason": "test"},
    }
    assert event.is_gap(value)


def test_prefixes_tell_events_from_gaps_without_parsing() -> None:
    of_event, of_gap = event.prefixes("resource", "att_1")
    assert line(12).startswith(of_event + b"12,")
    assert gap_line(1, 2).startswith(of_gap)


@pytest.mark.parametrize("fields", [{"x": "a" * event.MAX_LINE_BYTES}, {"x": float("inf")}, {"x": b"bytes"}])
def test_what_no_line_can_hold_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(event.EventError, match="resource event"):
        event.encode("resource", "att_1", 1, fields)


def test_a_value_that_holds_itself_is_no_event() -> None:
    arguments: dict[str, object] = {}
    arguments["again"] = arguments
    with pytest.raises(event.EventError, match="resource event"):
        event.encode("resource", "att_1", 1, {**sample(1), "arguments": arguments})


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(st.text(min_size=1, max_size=9), st.integers(1, 2**63 - 1), _JSON)
def test_a_line_is_what_json_makes_of_the_whole_event(attempt_id: str, sequence: int, value: Any) -> None:
    fields = {**sample(1), "value": value}
    head = {"kind": "resource", "attempt_id": attempt_id, "sequence": sequence}
    expected = json.dumps({**head, **fields}, separators=(",", ":")).encode() + b"\n"
    assert event.encode("resource", attempt_id, sequence, fields) == expected


@pytest.mark.parametrize("text", [b" %s", b"%s \n", b"\t%s\r\n"])
def test_white_space_around_an_event_is_nothing(text: bytes) -> None:
    assert event.decode(text % line(3)) == event.decode(line(3))


@pytest.mark.parametrize("text", [b"", b" ", b"%s x", b"%s{}", b"x%s"])
def test_what_is_not_one_value_is_no_event(text: bytes) -> None:
    with pytest.raises(event.EventError, match="not JSON"):
        event.decode(text.replace(b"%s", line(3)))


@given(st.binary(max_size=200))
def test_any_bytes_are_an_event_or_a_clear_error(data: bytes) -> None:
    try:
        event.decode(data)
    except event.EventError as error:
        assert str(error)


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.booleans() | st.floats(),
        lambda inner: (
            st.dictionaries(
                st.sampled_from(["kind", "attempt_id", "sequence", "timestamp_ns", "gap", "first", "last"]), inner
            )
            | st.lists(inner, max_size=2)
        ),
    )
)
def test_any_json_is_an_event_or_a_clear_error(value: object) -> None:
    try:
        found = event.decode(json.dumps(value).encode())
    except event.EventError:
        return
    assert found["kind"] in event.KINDS


@pytest.mark.parametrize(
    ("numbers", "problems"),
    [
        ([1, 2, 3], 0),
        ([], 0),
        ([2], 1),
        ([1, 3], 1),
        ([1, 1], 1),
        ([1, (2, 4), 5], 0),
        ([1, (2, None), 2], 0),
        ([(1, None), (1, 1), 2], 0),
        ([1, (3, 4), 5], 1),
        ([1, (2, 4), 6], 1),
        ([1, (2, None), 3], 1),
    ],
)
def test_a_hole_a_repeat_and_a_wrong_gap_are_found(numbers: list[object], problems: int) -> None:
    lines: list[dict[str, object]] = []
    for number in numbers:
        if isinstance(number, tuple):
            lines.append({"gap": {"first": number[0], "last": number[1], "reason": ""}})
        else:
            lines.append({"sequence": number})
    assert len(event.sequence_problems(lines)) == problems
