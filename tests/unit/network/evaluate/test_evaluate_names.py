"""DNS patterns mean what Cilium makes of them."""

from __future__ import annotations

import pytest

from network.evaluate.names import NamePattern


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("*.b.example", "a.b.example", True),
        ("*.b.example", "b.example", False),
        ("*.b.example", "x.a.b.example", False),
        ("*b.example", "sub-b.example", True),
        ("*b.example", "b.example", True),
        ("w*.b.example", "www.b.example", True),
        ("*", "any.name.at.all", True),
        ("**", "any.name.at.all", True),
        ("**.b.example", "x.a.b.example", True),
        ("**.b.example", "b.example", False),
        ("a.**.example", "a.x.example", True),
        ("a.**.example", "a.x.y.example", False),
        ("A.Example.", "a.EXAMPLE", True),
        ("a.example", "aXexample", False),
    ],
)
def test_pattern(pattern: str, name: str, expected: bool) -> None:
    assert NamePattern.of(pattern, exact=False).matches(name) is expected


def test_an_exact_name_is_no_pattern_and_ignores_case_and_the_last_dot() -> None:
    name = NamePattern.of("A.Example.", exact=True)
    assert name.matches("a.example") and not name.matches("www.a.example")


def test_a_pattern_covers_only_what_it_certainly_matches() -> None:
    wild = NamePattern.of("*.b.example", exact=False)
    assert wild.covers(NamePattern.of("a.b.example", exact=True))
    assert wild.covers(wild)
    assert not wild.covers(NamePattern.of("*.c.example", exact=False))
    assert NamePattern.of("*", exact=False).covers(wild)
    assert not NamePattern.of("a.b.example", exact=True).covers(wild)
