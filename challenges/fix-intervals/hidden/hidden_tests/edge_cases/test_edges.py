import pytest
from intervals import busy, merge


def test_contained_interval_does_not_shrink_its_neighbour():
    assert merge([(1, 10), (2, 3)]) == [(1, 10)]


def test_several_contained():
    assert merge([(0, 100), (1, 2), (3, 4), (99, 101)]) == [(0, 101)]


def test_busy_counts_shared_time_once():
    assert busy([(0, 10), (2, 3), (4, 5)]) == 10


def test_empty_interval_at_an_edge():
    assert merge([(1, 1), (1, 2)]) == [(1, 2)]


@pytest.mark.parametrize("shift", [0, -5, 1_000_000])
def test_chains_of_touching_intervals(shift):
    chain = [(n + shift, n + 1 + shift) for n in range(50)]
    assert merge(reversed(chain)) == [(shift, 50 + shift)]
