"""Figures of the benches: percentiles, ratios of pairs, targets, and what a run does with a bench that fails."""

from __future__ import annotations

import json
import sys
import types

import pytest

from tests.bench import __main__ as bench
from tests.bench.figures import KEYS, Figure, Target, adopt, figure, rounded
from tests.bench.options import Options
from tests.bench.report import cells, markdown


def test_percentiles_are_measured_values_by_nearest_rank():
    one = figure("f", [float(n) for n in range(100, 0, -1)], "ms")
    assert (one.p50, one.p95, one.p99) == (50.5, 95.0, 99.0)


def test_the_slow_end_of_a_rate_is_its_low_end():
    one = figure("f", [float(n) for n in range(1, 101)], "events/s")
    assert (one.p50, one.p95, one.p99) == (50.5, 6.0, 2.0)


def test_one_value_is_every_percentile():
    assert figure("f", [3.0], "s").p99 == 3.0


def test_nothing_measured_is_no_figure():
    with pytest.raises(ValueError, match="nothing was measured"):
        figure("f", [], "s")


def test_a_ratio_is_the_median_of_the_pairs_not_of_the_medians():
    that = figure("that", [1.0, 10.0, 100.0], "ms")
    one = figure("this", [2.0, 30.0, 50.0], "ms", beside=that, pairs=[(2.0, 1.0), (30.0, 10.0), (50.0, 100.0)])
    assert (one.beside, one.ratio) == ("that", 2.0)
    assert figure("this", [2.0, 30.0, 50.0], "ms", beside=that).ratio == 3.0


@pytest.mark.parametrize(
    ("target", "met"),
    [
        (Target("p50", "<", 2.0), False),
        (Target("p50", "≤", 2.0), True),
        (Target("p99", "≥", 2.0), True),
        (Target("ratio", "≤", 5.0), False),
    ],
)
def test_targets(target, met):
    assert figure("f", [2.0], "ms", targets=[target]).met is met
    assert figure("f", [2.0], "ms", targets=[Target("p50", "≤", 2.0), target]).met is met


def test_without_a_target_nothing_is_met_or_missed():
    one = figure("f", [2.0], "ms")
    assert one.met is None
    assert cells(one)[-2:] == ("", "")


def test_four_digits_are_kept():
    assert [rounded(v) for v in (0.0, 0.000123456, 12.3456, 123456.7)] == [0.0, 0.0001235, 12.35, 123457.0]


def test_rows_of_other_benches_name_what_they_were_measured_beside():
    alone = dict(zip(KEYS, ("store alone", 40.0, 30.0, 20.0, "events/s", None, None, 20_000), strict=True))
    through = dict(zip(KEYS, ("through", 30.0, 20.0, 10.0, "events/s", 40.0, 0.75, None), strict=True))
    lag = dict(zip(KEYS, ("lag", 3.0, 4.0, 600.0, "ms", None, None, 500.0), strict=True))
    found = adopt([alone, through, lag])
    assert [str(*one.targets) if one.targets else "" for one in found] == ["p50 ≥ 20000", "", "p99 < 500"]
    assert [one.met for one in found] == [False, None, False]
    assert (found[1].beside, found[1].ratio) == ("store alone", 0.75)


def test_rows_have_the_documented_keys():
    one = figure("f", [1.0], "ms", targets=[Target("p50", "<", 10), Target("p99", "<", 50)])
    assert tuple(one.to_json()) == KEYS
    assert one.to_json()["target"] == "p50 < 10, p99 < 50"


def test_markdown_has_a_line_for_each_figure():
    lines = markdown([figure("f", [1.0], "ms"), figure("g", [1234.0], "ms")]).splitlines()
    assert len(lines) == 4
    assert "| g | 1,234 |" in lines[3]


def test_a_quick_run_takes_a_tenth_and_never_nothing():
    assert (Options(quick=True).count(60), Options(quick=True).count(5), Options().count(60)) == (6, 3, 60)
    assert Options.of(True, fake_cycles=7) == Options(True, 7, 10)


def test_a_bench_that_fails_costs_no_other_its_figures(monkeypatch, tmp_path, capsys):
    def broken(options: Options) -> list[Figure]:
        raise RuntimeError("it broke")

    async def works(options: Options) -> list[Figure]:
        return [figure("works", [1.0], "ms")]

    for name, run in (("broken", broken), ("works", works)):
        module = types.ModuleType(name)
        module.run = run  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, f"tests.bench.{name}_bench", module)
    monkeypatch.setattr(bench, "BENCHES", {"broken": "", "works": ""})
    monkeypatch.setattr(bench, "REPOSITORY", tmp_path)
    monkeypatch.setattr(bench, "OUTPUT", tmp_path / "build" / "bench.json")
    monkeypatch.setattr(sys, "argv", ["bench"])
    assert bench.main() == 1
    written = json.loads((tmp_path / "build" / "bench.json").read_text())
    assert [row["name"] for row in written] == ["works", "machine: load average of one minute"]
    told = capsys.readouterr().err
    assert "it broke" in told
    assert "bench: broken FAILED" in told
