"""The composite and the scoring impact."""

from __future__ import annotations

import math

import pytest

from formats.record import Flag, Outcome
from scheduler.scores import composite, scoring_impact


def test_one_judge_alone_is_the_composite() -> None:
    assert composite({"objective": 82.5}) == 82.5


def test_no_judge_gives_no_composite() -> None:
    assert composite({}) is None


def test_a_zero_is_a_score_and_an_absent_judge_is_not() -> None:
    assert composite({"objective": 100, "process": 0}) == 50.0
    assert composite({"objective": 100}) == 100.0


def test_the_mean_has_one_decimal() -> None:
    assert composite({"objective": 82, "process": 75, "strategy": 88}) == 81.7


@pytest.mark.parametrize("bad", [{"integrity": 50.0}, {"objective": 101.0}, {"process": -1.0}, {"process": math.nan}])
def test_figures_without_weight_or_out_of_range_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        composite(bad)


@pytest.mark.parametrize(
    ("outcome", "flags", "impact"),
    [
        (None, (), {}),
        (Outcome.SUBMITTED, (), {}),
        (Outcome.SUBMITTED, (Flag.ESCAPE_ATTEMPT, Flag.PIDS_EXHAUSTED), {}),
        (Outcome.CRASHED, (), {"stability": 0, "other_dimensions": "scored on whatever artifacts exist"}),
        (
            Outcome.OOM_KILLED,
            (Flag.DISK_FULL,),
            {"stability": 0, "resource_efficiency": 0, "other_dimensions": "scored on validated artifacts"},
        ),
        (
            Outcome.TIMED_OUT,
            (),
            {"time_management": "penalized", "other_dimensions": "fully scored on whatever exists"},
        ),
        (
            Outcome.SUBMITTED,
            (Flag.DISK_FULL,),
            {"resource_efficiency": "penalized", "stability": "penalized if causes test failures"},
        ),
        (
            Outcome.SUBMITTED,
            (Flag.DATABASE_UNAVAILABLE,),
            {"objective": "database-dependent tests fail", "other_dimensions": "unaffected"},
        ),
        (Outcome.VOIDED, (Flag.DISK_FULL,), {}),
        (Outcome.CANCELLED, (Flag.DISK_FULL,), {}),
    ],
)
def test_scoring_impact(outcome: Outcome | None, flags: tuple[Flag, ...], impact: dict[str, object]) -> None:
    assert scoring_impact(outcome, flags) == impact
