"""One figure: percentiles of what was measured, what it was measured beside, and whether it keeps its target.

Pure. A ratio is always this figure divided by the one beside it, taken within one run: the median of the ratios of
interleaved pairs where there are pairs, else the quotient of the medians. `beside` names another figure of the list.
"""

from __future__ import annotations

import math
import operator
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

RELATIONS = {"<": operator.lt, "≤": operator.le, "≥": operator.ge}
KEYS = ("name", "p50", "p95", "p99", "unit", "beside", "ratio", "target")


@dataclass(frozen=True, slots=True)
class Target:
    """A bound for one of p50, p95, p99, ratio."""

    of: str
    relation: str
    limit: float

    def __str__(self) -> str:
        return f"{self.of} {self.relation} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. For a rate, p95 and p99 are its slow end."""

    name: str
    p50: float
    p95: float
    p99: float
    unit: str
    beside: str | None = None
    ratio: float | None = None
    targets: tuple[Target, ...] = ()

    @property
    def met(self) -> bool | None:
        """Whether every target is kept; None without one. A ratio that was not taken keeps no target."""
        if not self.targets:
            return None
        return all(self._keeps(target) for target in self.targets)

    def _keeps(self, target: Target) -> bool:
        value = getattr(self, target.of)
        return value is not None and bool(RELATIONS[target.relation](value, target.limit))

    def to_json(self) -> dict[str, Any]:
        """The row of build/bench.json."""
        target = ", ".join(map(str, self.targets)) or None
        values = {name: getattr(self, name) for name in KEYS[:-1]}
        return {**values, "target": target}


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest measured value that at least `share` of all values do not exceed (nearest rank)."""
    if not ordered:
        raise ValueError("nothing was measured")
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def figure(
    name: str,
    values: Sequence[float],
    unit: str,
    *,
    beside: Figure | None = None,
    pairs: Sequence[tuple[float, float]] = (),
    targets: Sequence[Target] = (),
) -> Figure:
    """A figure of measured values. `pairs` are (this, that) of one moment each. Raises ValueError for no values."""
    ordered = sorted(values, reverse=unit.endswith("/s"))
    p50 = statistics.median(ordered) if ordered else percentile(ordered, 0.5)
    ratio = None
    if pairs:
        ratio = statistics.median(this / that for this, that in pairs)
    elif beside is not None:
        ratio = p50 / beside.p50
    return Figure(
        name=name,
        p50=rounded(p50),
        p95=rounded(percentile(ordered, 0.95)),
        p99=rounded(percentile(ordered, 0.99)),
        unit=unit,
        beside=beside.name if beside is not None else None,
        ratio=None if ratio is None else rounded(ratio),
        targets=tuple(targets),
    )


def adopt(rows: Sequence[dict[str, Any]]) -> list[Figure]:
    """Rows of the older benches, whose `beside` and `target` are numbers, as figures.

    A number beside is the p50 of a row before it, the nearest one. A number as target bounds a rate's p50 from below,
    a lag's p99 or a duration's p50 from above.
    """
    found: list[Figure] = []
    for row in rows:
        unit, limit = row["unit"], row["target"]
        of = "p99" if unit == "ms" else "p50"
        relation = "≥" if unit.endswith("/s") else "<"
        found.append(
            Figure(
                name=row["name"].replace("_", " "),
                p50=rounded(row["p50"]),
                p95=rounded(row["p95"]),
                p99=rounded(row["p99"]),
                unit=unit,
                beside=_name_of(row["beside"], found),
                ratio=row["ratio"],
                targets=() if limit is None else (Target(of, relation, float(limit)),),
            )
        )
    return found


def _name_of(beside: float | None, before: Sequence[Figure]) -> str | None:
    if beside is None:
        return None
    return next((one.name for one in reversed(before) if one.p50 == rounded(beside)), f"{beside:g}")


def rounded(value: float) -> float:
    """Four significant digits: more would pretend to a precision that no run has."""
    if value == 0 or not math.isfinite(value):
        return value
    return round(value, max(0, 3 - math.floor(math.log10(abs(value)))))
