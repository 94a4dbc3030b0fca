"""Values to JSON and back; nothing is lost, nonsense is refused."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.supervisor.codec import result_from_wire, spec_to_wire, text_from_wire, text_to_wire
from daemon.supervisor.errors import ProtocolError
from daemon.supervisor.types import ExecSpec


@given(st.binary(max_size=60))
def test_any_bytes_survive_as_text(raw: bytes) -> None:
    back = text_from_wire(json.loads(json.dumps(text_to_wire(raw))))
    assert (back if isinstance(back, bytes) else back.encode()) == raw


def test_utf8_is_plain_and_surrogate_escapes_are_bytes() -> None:
    assert text_to_wire("né") == "né"
    assert text_from_wire(text_to_wire("\udcff")) == b"\xff"


@pytest.mark.parametrize("value", [None, 1, [], {}, {"b64": 1}])
def test_a_text_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(ProtocolError):
        text_from_wire(value)


@pytest.mark.parametrize("timeout", [0, -1, math.nan, math.inf, -math.inf])
def test_impossible_timeouts_are_refused(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout_seconds"):
        spec_to_wire(ExecSpec(["true"], timeout_seconds=timeout), "e")


@pytest.mark.parametrize(
    "spec",
    [
        ExecSpec([]),
        ExecSpec([""]),
        ExecSpec(["a", "b\0"]),
        ExecSpec([b"\0"]),
        ExecSpec(["a"], cwd="\0"),
        ExecSpec(["a"], max_output_bytes=-1),
    ],
)
def test_what_can_never_run_is_refused(spec: ExecSpec) -> None:
    with pytest.raises(ValueError, match=r"argv|cwd|max_output_bytes"):
        spec_to_wire(spec, "e")


def test_an_unknown_field_in_a_result_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="EXITED"):
        result_from_wire({"exit_code": 0, "surprise": 1})
