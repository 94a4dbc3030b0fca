"""Scores: the composite of what the judges found, and what an ending does to scoring. Pure.

Figures are 0-100. A judge that has not run is absent and its weight goes to those that have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from formats.record import Flag, Outcome

# The three judges that give a figure weigh the same; the integrity judge gives a verdict, which has no weight.
WEIGHTS: dict[str, float] = {"objective": 1.0, "process": 1.0, "strategy": 1.0}

# Specification, "Failure Handling": the scoring_impact of each ending and of each condition beside it.
_OUTCOME_IMPACT: dict[Outcome, dict[str, int | str]] = {
    Outcome.CRASHED: {"stability": 0, "other_dimensions": "scored on whatever artifacts exist"},
    Outcome.OOM_KILLED: {
        "stability": 0,
        "resource_efficiency": 0,
        "other_dimensions": "scored on validated artifacts",
    },
    Outcome.TIMED_OUT: {
        "time_management": "penalized",
        "other_dimensions": "fully scored on whatever exists",
    },
}
_FLAG_IMPACT: dict[Flag, dict[str, int | str]] = {
    Flag.DISK_FULL: {"resource_efficiency": "penalized", "stability": "penalized if causes test failures"},
    Flag.DATABASE_UNAVAILABLE: {"objective": "database-dependent tests fail", "other_dimensions": "unaffected"},
}


def composite(scores: Mapping[str, float]) -> float | None:
    """The weighted mean of the figures given, to one decimal; None without any. One figure alone stays itself.

    `scores` maps a judge's name to 0-100. Raises ValueError for a judge without a weight or a figure out of range.
    """
    unknown = sorted(set(scores) - set(WEIGHTS))
    if unknown:
        raise ValueError(f"no weight for {', '.join(unknown)}; figures come from {', '.join(WEIGHTS)}")
    for judge, score in scores.items():
        if not 0 <= score <= 100:
            raise ValueError(f"{judge} gives {score}; scores are 0-100")
    total = sum(WEIGHTS[judge] for judge in scores)
    if not total:
        return None
    return round(sum(score * WEIGHTS[judge] for judge, score in scores.items()) / total, 1)


def scoring_impact(outcome: Outcome | None, flags: Iterable[Flag]) -> dict[str, int | str]:
    """What the specification says an ending does to scoring; empty where it says nothing.

    A void and a cancellation are not scored, so nothing bears on their scores. The outcome's word on a dimension
    stands before a flag's.
    """
    if outcome in (None, Outcome.VOIDED, Outcome.CANCELLED):
        return {}
    impact: dict[str, int | str] = {}
    for flag in sorted(set(flags)):
        for dimension, effect in _FLAG_IMPACT.get(flag, {}).items():
            impact.setdefault(dimension, effect)
    return {**impact, **_OUTCOME_IMPACT.get(outcome, {})}
