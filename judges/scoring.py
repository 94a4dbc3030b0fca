"""From reports to a score: pure.

A suite's tests are those that were collected without agent code. One that is missing, doubled or not passed scores
0; a reported test that nobody expected is one more failure. Scores are 0 to 100.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from formats.objective import ObjectiveConfig
from judges.reports import FAILED, PASSED, Case

NOT_REPORTED = "not reported"
REPORTED_TWICE = "reported more than once"
NOT_EXPECTED = "not a test of this suite"


@dataclass(frozen=True)
class SuiteResult:
    """One suite's cases, judged. `problem` says what cut it short, empty when nothing did."""

    suite: str
    cases: tuple[Case, ...]
    problem: str = ""

    @property
    def passed(self) -> int:
        """Cases that passed."""
        return sum(case.outcome == PASSED for case in self.cases)

    @property
    def score(self) -> float:
        """0 to 100."""
        return 100.0 * self.passed / len(self.cases) if self.cases else 0.0


def judge_suite(suite: str, expected: Sequence[str], reported: Sequence[Case], problem: str = "") -> SuiteResult:
    """Hold what was reported against what was expected."""
    counts = Counter(case.test_id for case in reported)
    by_id = {case.test_id: case for case in reported}
    cases: list[Case] = []
    for test_id in expected:
        if counts[test_id] == 0:
            cases.append(Case(test_id, FAILED, message=problem or NOT_REPORTED))
        elif counts[test_id] > 1:
            cases.append(Case(test_id, FAILED, message=REPORTED_TWICE))
        else:
            cases.append(by_id[test_id])
    unknown = sorted(set(counts) - set(expected))
    cases.extend(Case(test_id, FAILED, message=NOT_EXPECTED) for test_id in unknown)
    return SuiteResult(suite, tuple(cases), problem)


def objective_score(results: Sequence[SuiteResult], config: ObjectiveConfig) -> float:
    """The weighted score of the suites that exist, two decimals."""
    weights = config.weights_of([result.suite for result in results])
    return round(sum(weights[result.suite] * result.score / 100 for result in results), 2)


def test_results(results: Sequence[SuiteResult], config: ObjectiveConfig, score: float) -> dict[str, Any]:
    """`test_results.json`: per-test outcome; output of hidden tests is for operators only."""
    weights = config.weights_of([result.suite for result in results])
    return {
        "score": score,
        "suites": {
            result.suite: {
                "weight": round(weights[result.suite], 4),
                "score": round(result.score, 2),
                "passed": result.passed,
                "total": len(result.cases),
                "problem": result.problem,
                "tests": [
                    {
                        "id": case.test_id,
                        "outcome": case.outcome,
                        "duration_ms": round(case.seconds * 1e3, 3),
                        "message": case.message,
                    }
                    for case in result.cases
                ],
            }
            for result in results
        },
    }
