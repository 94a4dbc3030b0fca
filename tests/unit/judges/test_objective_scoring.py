"""From untrusted reports to scores: what is missing, doubled or unknown is a failure, and nothing steers the parser."""

from __future__ import annotations

import contextlib
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.objective import ObjectiveConfig, parse_objective
from judges import runner, scoring
from judges.errors import JudgingFault
from judges.package import read_challenge
from judges.reports import MAX_REPORT_BYTES, Case, ReportUnreadable, parse_junit, parse_progress

JUNIT = b"""<?xml version="1.0" encoding="utf-8"?><testsuites><testsuite name="pytest">
<testcase classname="tests.test_a" name="test_one" time="0.5"/>
<testcase classname="tests.test_a.TestB" name="test_two[x-1]" time="bad"><failure message="no">t</failure></testcase>
<testcase classname="tests.test_a" name="test_skip"><skipped message="why"/></testcase>
<testcase classname="tests.test_a" name="test_err"><error message="boom"/></testcase>
</testsuite></testsuites>"""


@pytest.mark.parametrize(
    ("node_id", "expected"),
    [
        ("tests/unit/test_a.py::test_one", "tests.unit.test_a::test_one"),
        ("test_a.py::TestB::test_two[x-1]", "test_a.TestB::test_two[x-1]"),
        ("test_a.py::test_p[a::b/c.py]", "test_a::test_p[a::b/c.py]"),
    ],
)
def test_node_ids_become_the_ids_of_the_junit_report(node_id, expected):
    assert runner.junit_id(node_id) == expected


def test_collected_ids_stop_at_the_summary():
    text = "tests/test_a.py::test_one\ntests/test_a.py::test_two\n\n2 tests collected in 0.01s\nx::y\n"
    assert runner.collected_ids(text) == ["tests.test_a::test_one", "tests.test_a::test_two"]


def test_a_report_is_read_case_by_case():
    cases = {case.test_id: case for case in parse_junit(JUNIT)}
    assert [case.outcome for case in cases.values()] == ["passed", "failed", "skipped", "error"]
    assert cases["tests.test_a::test_one"].seconds == 0.5
    assert cases["tests.test_a.TestB::test_two[x-1]"].seconds == 0.0


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<testsuites>",
        b"<html/>",
        b'<!DOCTYPE a [<!ENTITY x "y">]><testsuites>&x;</testsuites>',
        b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><testsuites/>',
        b"x" * (MAX_REPORT_BYTES + 1),
        b"\xff\xfe\x00",
    ],
)
def test_what_is_no_plain_report_is_refused(data):
    with pytest.raises(ReportUnreadable):
        parse_junit(data)


@given(st.binary(max_size=300))
def test_no_bytes_crash_the_readers(data):
    parse_progress(data)
    with contextlib.suppress(ReportUnreadable):
        parse_junit(data)


def test_progress_keeps_what_was_finished_and_drops_a_cut_line():
    data = b'{"id":"t.py::a","outcome":"passed","seconds":0.1}\n[]\n{"id":"t.py::b","outcome":"fai'
    assert parse_progress(data) == [Case("t::a", "passed", 0.1)]


def test_missing_doubled_and_unknown_tests_fail():
    reported = [Case("a", "passed"), Case("b", "passed"), Case("b", "passed"), Case("x", "passed")]
    result = scoring.judge_suite("visible", ["a", "b", "c"], reported)
    assert {case.test_id: (case.outcome, case.message) for case in result.cases} == {
        "a": ("passed", ""),
        "b": ("failed", scoring.REPORTED_TWICE),
        "c": ("failed", scoring.NOT_REPORTED),
        "x": ("failed", scoring.NOT_EXPECTED),
    }
    assert result.score == 25.0


def test_a_suite_that_was_cut_short_keeps_what_it_finished():
    result = scoring.judge_suite("security", ["a", "b"], [Case("a", "passed")], "the time limit was reached")
    assert result.score == 50.0
    assert result.cases[1].message == "the time limit was reached"


@pytest.mark.parametrize("outcome", ["failed", "skipped", "error", "xpassed", ""])
def test_only_a_pass_scores(outcome):
    assert scoring.judge_suite("visible", ["a"], [Case("a", outcome)]).score == 0


def test_scores_are_weighted_over_the_suites_that_exist():
    visible = scoring.judge_suite("visible", ["a"], [Case("a", "passed")])
    edges = scoring.judge_suite("edge_cases", ["a", "b"], [Case("a", "passed")])
    assert scoring.objective_score([visible, edges], ObjectiveConfig()) == 30 + 35
    weighted = parse_objective(b"weights: {visible: 10, edge_cases: 90}")
    assert scoring.objective_score([visible, edges], weighted) == 10 + 45


def test_a_command_of_the_challenge_names_its_report():
    config = parse_objective(b"command: {visible: [make, 'JUNIT={report}', check]}")
    run = runner.suite_run("visible", config)
    assert run.argv == ("make", f"JUNIT={run.report}", "check")
    assert run.progress == ""


def test_what_is_no_package_voids_the_judging():
    with pytest.raises(JudgingFault):
        read_challenge(io.BytesIO(b"no tar"))
