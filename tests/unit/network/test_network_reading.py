"""The YAML reader and the variables: lines, types, bounds, and structure that no variable can add."""

from __future__ import annotations

from typing import Any

import pytest

from network.problems import Report
from network.substitute import substitute
from network.yamlread import MAX_NODES, Map, Node, Scalar, Seq, read_yaml, resolve_plain


def read(text: str) -> tuple[Node | None, Report]:
    report = Report()
    return read_yaml(text, "f.yaml", report), report


def plain(node: Node | None) -> Any:
    if isinstance(node, Map):
        return {key: plain(child) for key, child in node.items.items()}
    if isinstance(node, Seq):
        return [plain(child) for child in node.items]
    return node.value if node is not None else None


@pytest.mark.parametrize(
    ("text", "value"),
    [("yes", True), ("off", False), ("1", 1), ("017", 15), ("0x1f", 31), ("1_000", 1000), ("1.5", 1.5),
     ("22:22", "22:22"), ("~", None), ("", None), ("none", "none"), ("2001-01-01", "2001-01-01"),
     ("1" * 70, "1" * 70), ("-5", -5),
     ("=", "="), ("0b101", 5), ("<<", "<<")],
)  # fmt: skip
def test_plain_scalars_have_yaml_types(text: str, value: object) -> None:
    assert resolve_plain(text) == value


def test_lines_are_kept_for_keys_and_values() -> None:
    root, report = read("a: 1\nb:\n  c:\n    - x\n    - y\n")
    assert report.ok and isinstance(root, Map)
    inner = root.items["b"]
    assert isinstance(inner, Map) and inner.lines["c"] == 3
    listed = inner.items["c"]
    assert isinstance(listed, Seq) and [item.line for item in listed.items] == [4, 5]


def test_quoted_scalars_are_text() -> None:
    root, _ = read("a: '1'\nb: \"yes\"\nc: !!str 1\nd: !!int '7'\n")
    assert plain(root) == {"a": "1", "b": "yes", "c": "1", "d": 7}


def test_anchors_aliases_and_merge_keys() -> None:
    root, report = read("base: &b {x: 1, y: 2}\nother: {<<: *b, y: 3}\nlist: {<<: [*b, {z: 4}]}\nsame: *b\n")
    assert report.ok
    assert plain(root) == {
        "base": {"x": 1, "y": 2},
        "other": {"x": 1, "y": 3},
        "list": {"x": 1, "y": 2, "z": 4},
        "same": {"x": 1, "y": 2},
    }


def test_every_duplicate_is_reported_with_both_lines() -> None:
    _, report = read("a: 1\nb: 2\na: 3\nb: 4\n'1': x\n1: y\n")
    assert [(item.code, item.line) for item in report.problems] == [("R40", 3), ("R40", 4), ("R40", 6)]
    assert "first on line 1" in report.problems[0].message


def test_expanded_size_is_bounded_but_sharing_is_free_below_it() -> None:
    root, report = read("a: &a [1, 2, 3]\nb: [*a, *a]\n")
    assert report.ok and isinstance(root, Map) and root.size < 20
    _, report = read("x: [" + "1," * MAX_NODES + "1]")
    assert [item.code for item in report.problems] == ["R40"]


def expanded(text: str, **env: str) -> tuple[Any, Report]:
    root, report = read(text)
    assert root is not None
    return plain(substitute(root, env, "f.yaml", report)), report


@pytest.mark.parametrize(
    ("text", "value"),
    [("${A}", "x"), ("$A-$A", "x-x"), ("${M:-d}", "d"), ("${E:-d}", "d"), ("'${E-d}'", ""), ("'${A:+y}${M:+z}'", "y"),
     ("${M:-${A}}", "x"), ("$$A", "$A"), ("${M:-a}b${M:-}", "ab"), ("${M-${N-z}}", "z"), ("${A:?no}", "x")],
)  # fmt: skip
def test_variables(text: str, value: str) -> None:
    found, report = expanded(f"k: {text}", A="x", E="")
    assert report.ok and found == {"k": value}


def test_an_unquoted_result_gets_its_type_and_a_quoted_one_does_not() -> None:
    found, _ = expanded("a: ${X}\nb: '${X}'\nc: ${N}\n", X="true", N="5")
    assert found == {"a": True, "b": "true", "c": 5}


def test_a_variable_is_never_structure_or_a_key() -> None:
    found, report = expanded("a: ${X}\n${X}: b\n", X="v\nc: {d: e}")
    assert report.ok and found == {"a": "v\nc: {d: e}", "${X}": "b"}


@pytest.mark.parametrize("text", ["${", "${}", "${A", "${9}", "$ x", "${A!b}", "${M:?why}", "$-", "${A:-${B:-"])
def test_bad_expressions_are_problems(text: str) -> None:
    _, report = expanded(f"k: '{text}'", A="x")
    assert [item.code for item in report.problems] == ["R41"]


def test_growth_and_nesting_are_bounded() -> None:
    _, report = expanded("k: [" + "'${A}'," * 50 + "]", A="x" * 100_000)
    assert {item.code for item in report.problems} == {"R41"}
    _, report = expanded("k: '" + "${M:-" * 20 + "}" * 20 + "'")
    assert {item.code for item in report.problems} == {"R41"}


def test_scalars_know_what_was_written() -> None:
    root, _ = read("a: 010\n")
    assert isinstance(root, Map)
    node = root.items["a"]
    assert isinstance(node, Scalar) and (node.value, node.text, node.plain) == (8, "010", True)
