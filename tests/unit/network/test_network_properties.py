"""Properties over random files: no crash, nothing empty, `none` means none, and one answer per input."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from network.check import Checked, Source, check
from network.domains import DomainError, canonical, labels_overlap, overlaps
from network.render.backend import Refused, render
from tests.support.network_strategies import as_yaml, isolations, near, valid_compose, valid_values

BACKENDS = ("cilium", "gke-dpv2", "kubernetes", "docker")
RUNS = settings(max_examples=300, deadline=None)


def outcome_of(text: str | bytes, kind: str | None, isolation: str | None = None, human: bool = False) -> Checked:
    source = None if isolation is None else Source(isolation, "i.yaml")
    return check(Source(text, "f.yaml"), kind=kind, isolation=source, human_eval=human)  # type: ignore[arg-type]


def no_holes(value: Any) -> bool:
    """No empty mapping or list anywhere."""
    if isinstance(value, dict):
        return bool(value) and all(no_holes(inner) for inner in value.values())
    if isinstance(value, list | tuple):
        return bool(value) and all(no_holes(inner) for inner in value)
    return True


def holds(outcome: Checked) -> None:
    """What is true of every outcome."""
    document = outcome.to_json()
    json.dumps(document)
    assert document["ok"] == (not document["problems"])
    for entry in [*document["problems"], *document["warnings"]]:
        assert entry["message"] and (entry["line"] is None or entry["line"] >= 1)
    if not outcome.ok:
        assert document["services"] == {}
        return
    for name, verdict in outcome.matrix.items():
        assert name not in verdict.reachable_from
        assert (verdict.internet == "listed") == bool(verdict.domains or verdict.cidrs)
        assert (verdict.dns == "all") == (verdict.internet == "all")
        assert (verdict.dns == "listed") == bool(verdict.domains)
        if verdict.dns == "none":
            assert verdict.internet == "none" and verdict.reachable_from == ()
            assert all(name not in other.reachable_from for other in outcome.matrix.values())
    connected = {verdict.internet for verdict in outcome.matrix.values() if verdict.dns != "none"}
    assert len(connected) <= 1
    for one, two in itertools.combinations(outcome.matrix, 2):
        assert (one in outcome.matrix[two].reachable_from) == (two in outcome.matrix[one].reachable_from)


def renders(outcome: Checked) -> None:
    """What is rendered is free of holes, deterministic, and keyed by the sandbox."""
    for backend in BACKENDS:
        try:
            rendered = render(outcome, backend, sandbox_id="sbx-1")  # type: ignore[arg-type]
        except Refused:
            continue
        if backend != "docker":
            for item in rendered.objects:
                assert no_holes(item), item
        assert render(outcome, backend, sandbox_id="sbx-1") == rendered  # type: ignore[arg-type]
        assert set(rendered.pods) == set(outcome.matrix)
        for name, pod in rendered.pods.items():
            assert bool(pod.hosts) == (outcome.matrix[name].dns != "none")


@RUNS
@given(valid_compose(), isolations, st.booleans())
def test_valid_compose_files(document: dict[str, Any], isolation: str | None, human: bool) -> None:
    outcome = outcome_of(as_yaml(document), "compose", isolation, human)
    holds(outcome)
    allowed = {"R3", "R4", "R7", "R29", "R36", "R37", "R39"}
    assert {problem.code for problem in outcome.report.problems} <= allowed
    renders(outcome)


@RUNS
@given(valid_values(), isolations, st.booleans())
def test_valid_values_files(document: dict[str, Any], isolation: str | None, human: bool) -> None:
    outcome = outcome_of(as_yaml(document), "values", isolation, human)
    holds(outcome)
    assert {problem.code for problem in outcome.report.problems} <= {"R36", "R37", "R39"}
    renders(outcome)


@RUNS
@given(near(st.one_of(valid_compose(), valid_values())), st.sampled_from((None, "compose", "values")), isolations)
def test_near_valid_files_never_crash(document: Any, kind: str | None, isolation: str | None) -> None:
    outcome = outcome_of(as_yaml(document), kind, isolation)
    holds(outcome)
    renders(outcome)


@RUNS
@given(near(st.just({"isolation": {"level": "strict", "allow_domains": ["a.b"]}, "sandbox": {"type": "k8s"}})))
def test_near_valid_isolation_settings_never_crash(document: Any) -> None:
    holds(outcome_of("services: {default: {image: x}}", None, as_yaml(document)))


@RUNS
@given(st.one_of(st.binary(max_size=200), st.text(max_size=200)), st.sampled_from((None, "compose", "values")))
@example(b"\xef\xbb\xbfservices: {a: {image: x}}", "compose")
@example("a: &a\n<<: *a", None)
@example("? ", None)
@example("%YAML 1.2\n---\na: 1", None)
@example("!!set {a}", None)
@example("&a", None)
def test_arbitrary_text_never_crashes(text: str | bytes, kind: str | None) -> None:
    holds(outcome_of(text, kind))


_YAML_PIECES = st.lists(
    st.sampled_from(
        ("services:", "\n", "  ", "- ", "a", ": ", "&x ", "*x", "{", "}", "[", "]", ",", "'", '"', "<<: *x", "!!str ",
         "|", ">", "? ", "networks", "none", "~", "#", "---\n", "...", "%", "\t", "0", "${A:-", "}", "$")
    ),
    max_size=40,
)  # fmt: skip


@RUNS
@given(_YAML_PIECES)
def test_shuffled_yaml_never_crashes(pieces: list[str]) -> None:
    holds(outcome_of("".join(pieces), None))


_LABELS = st.text("ab*-", min_size=1, max_size=5)
_PATTERNS = st.builds(".".join, st.lists(_LABELS, min_size=1, max_size=4))


@RUNS
@given(_LABELS, _LABELS)
def test_label_overlap_agrees_with_trying_every_short_label(one: str, two: str) -> None:
    import re

    def matches(pattern: str) -> re.Pattern[str]:
        return re.compile(re.escape(pattern).replace(r"\*", "[ab-]*"))

    if "*" in one and "*" in two:
        assert labels_overlap(one, two) == labels_overlap(two, one)
        return
    literal, pattern = (one, two) if "*" not in one else (two, one)
    assert labels_overlap(one, two) == (matches(pattern).fullmatch(literal) is not None)


@RUNS
@given(_PATTERNS, _PATTERNS)
def test_domains_are_canonical_and_overlap_is_symmetric(one: str, two: str) -> None:
    names = []
    for text in (one, two):
        try:
            names.append(canonical(text))
        except DomainError:
            return
    assert canonical(names[0].upper() + ".") == names[0]
    assert overlaps(*names) == overlaps(*reversed(names))
    assert overlaps(names[0], names[0])
