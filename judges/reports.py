"""Test reports as untrusted input: JUnit XML and progress lines, both may be written by the judged code.

The XML parser expands nothing and the size is capped. What cannot be read says so; it is never guessed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from xml.etree.ElementTree import Element, ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring

from judges.runner import junit_id

MAX_REPORT_BYTES = 32 * 1024 * 1024
MAX_TESTS = 50_000
MAX_MESSAGE_CHARS = 2_000
PASSED, FAILED, ERROR, SKIPPED = "passed", "failed", "error", "skipped"
_OUTCOMES = {"failure": FAILED, "error": ERROR, "skipped": SKIPPED}


class ReportUnreadable(ValueError):
    """The report is missing, too large, or no JUnit report; the message says which."""


@dataclass(frozen=True)
class Case:
    """One reported test: `classname::name`, its outcome, its seconds, its message."""

    test_id: str
    outcome: str
    seconds: float = 0.0
    message: str = ""


def parse_junit(data: bytes) -> list[Case]:
    """The cases of a JUnit report. Raises ReportUnreadable."""
    if len(data) > MAX_REPORT_BYTES:
        raise ReportUnreadable(f"the report has {len(data)} bytes, {MAX_REPORT_BYTES} at most")
    try:
        root = fromstring(data, forbid_dtd=True)
    except (ParseError, DefusedXmlException, ValueError, RecursionError) as error:
        raise ReportUnreadable(f"the report is not plain XML: {error}") from error
    if root.tag not in ("testsuites", "testsuite"):
        raise ReportUnreadable(f"the report's root is <{root.tag[:40]}>, not <testsuites>")
    cases = [_case(element) for element in root.iter("testcase")]
    if len(cases) > MAX_TESTS:
        raise ReportUnreadable(f"the report has {len(cases)} tests, {MAX_TESTS} at most")
    return cases


def parse_progress(data: bytes) -> list[Case]:
    """The cases of a progress file; a line that is cut or no result is left out."""
    cases: list[Case] = []
    for line in data[:MAX_REPORT_BYTES].splitlines()[:MAX_TESTS]:
        try:
            value = json.loads(line)
            cases.append(Case(junit_id(str(value["id"])), str(value["outcome"]), _seconds(value["seconds"])))
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return cases


def _case(element: Element) -> Case:
    name, classname = element.get("name", ""), element.get("classname", "")
    outcome, message = PASSED, ""
    for child in element:
        if child.tag in _OUTCOMES:
            # An error in teardown comes beside a pass or a failure: the worse one counts.
            outcome = _OUTCOMES[child.tag]
            message = child.get("message", "") or (child.text or "")
    return Case(f"{classname}::{name}", outcome, _seconds(element.get("time")), message[:MAX_MESSAGE_CHARS])


def _seconds(text: object) -> float:
    match = re.fullmatch(r"\d{1,9}(\.\d{1,12})?", str(text)) if text is not None else None
    return float(match[0]) if match else 0.0
