"""The interval of a median, against the table of the sign test, and what counts as full telemetry."""

import random

import pytest

from tests.bench.cost_bench import interval, require_telemetry


@pytest.mark.parametrize(("count", "low"), [(6, 1), (8, 1), (9, 2), (20, 6), (24, 7), (25, 8), (30, 10)])
def test_the_ranks_are_those_of_the_sign_test(count: int, low: int) -> None:
    values = [float(rank) for rank in range(1, count + 1)]
    random.Random(count).shuffle(values)
    assert interval(values) == (low, count + 1 - low)


def test_too_few_values_have_no_interval() -> None:
    with pytest.raises(ValueError, match="5 values"):
        interval([1.0] * 5)


def test_a_kind_that_was_not_recorded_is_an_error() -> None:
    everything = {"tool_invocation": 1, "process": 1, "filesystem": 1, "resource": 1}
    require_telemetry(everything, {})
    with pytest.raises(RuntimeError, match=r"no event of: filesystem$"):
        require_telemetry({**everything, "filesystem": 0}, {})
