import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from intervals import busy, merge


def test_nothing():
    assert merge([]) == []


def test_overlap():
    assert merge([(1, 3), (2, 5)]) == [(1, 5)]


def test_apart():
    assert merge([(4, 5), (1, 2)]) == [(1, 2), (4, 5)]


def test_touching():
    assert merge([(1, 2), (2, 3)]) == [(1, 3)]


def test_busy():
    assert busy([(0, 2), (1, 4)]) == 4
