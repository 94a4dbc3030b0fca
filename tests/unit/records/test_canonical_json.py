"""Canonical JSON: the examples of RFC 8785, and what it must refuse."""

from __future__ import annotations

import json
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.canonical import MAX_DEPTH, CanonicalError, canonical, digest, digest_of, sha256_hex


# RFC 8785 appendix B: IEEE 754 bits and their text.
@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("8000000000000001", "-5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("ffefffffffffffff", "-1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("c340000000000000", "-9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("44b52d02c7e14af7", "1.0000000000000001e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef4f", "999999999999999900000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555553", "333333333.3333332"),
        ("41b3de4355555554", "333333333.33333325"),
        ("41b3de4355555555", "333333333.3333333"),
        ("41b3de4355555556", "333333333.3333334"),
        ("41b3de4355555557", "333333333.33333343"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_numbers_of_the_standard(bits: str, text: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical(number) == text.encode()


def test_the_standards_example() -> None:
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
        "literals": [None, True, False],
    }
    assert canonical(value).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_keys_are_ordered_by_utf16_units() -> None:
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    ordered = ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]
    assert list(json.loads(canonical(dict.fromkeys(keys)))) == ordered


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    # Between 2^53 and 1e21 a float's text is an integer's, padded with zeros: another number when read as one.
    | st.floats(-(2.0**53), 2.0**53)
    | st.floats(1e21, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(json_values)
def test_the_text_means_the_value_and_is_its_own_canonical_form(value: object) -> None:
    text = canonical(value)  # type: ignore[arg-type]
    again = json.loads(text)
    assert again == value
    assert canonical(again) == text


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 9), max_size=6))
def test_order_of_insertion_does_not_matter(value: dict[str, int]) -> None:
    assert canonical(value) == canonical(dict(reversed(value.items())))


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, math.nan]}, r"\$\.a\[1\]"),
        ({"a": math.inf}, r"\$\.a"),
        ({"a": 2**63}, "64 bits"),
        ({"a": -(2**63) - 1}, "64 bits"),
        ({"a": "\ud800"}, "surrogate"),
        ({"\udfff": 1}, "surrogate"),
        ({1: 2}, "not a string"),
        ({"a": b"x"}, "bytes"),
        ({"a": {1, 2}}, "set"),
    ],
)
def test_what_has_no_canonical_json_is_refused_with_its_path(value: object, path: str) -> None:
    with pytest.raises(CanonicalError, match=path):
        canonical(value)  # type: ignore[arg-type]


def test_depth_is_bounded() -> None:
    value: list[object] = []
    for _ in range(MAX_DEPTH):
        value = [value]
    canonical(value)  # type: ignore[arg-type]
    with pytest.raises(CanonicalError, match="deeper"):
        canonical([value])  # type: ignore[list-item]


def test_nanosecond_times_keep_every_digit() -> None:
    assert canonical({"t": 1_800_000_000_123_456_789}) == b'{"t":1800000000123456789}'


def test_digests_name_their_function() -> None:
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert sha256_hex(b"") == empty
    assert digest(b"") == f"sha256:{empty}"
    assert digest_of({"b": 1, "a": 2}) == digest(b'{"a":2,"b":1}')
