"""Which names steer a test runner, and that the list of them stays bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.workspace.steering import TESTS, SteeringPaths, outermost, steers


@pytest.mark.parametrize(
    "name",
    [
        b"conftest.py", b"conftest.pyc", b"conftest", b"CONFTEST.PY", b"pytest.ini", b".pytest.ini", b"pytest.toml",
        b"tox.ini", b"setup.cfg", b"pyproject.toml", b"a.pth", b"sitecustomize.py", b"sitecustomize",
        b"usercustomize.cpython-311-x86_64-linux-gnu.so", b"x-1.dist-info", b"x.egg-info", b"EGG-INFO", b"__pycache__",
    ],
)  # fmt: skip
def test_names_that_steer(name: bytes) -> None:
    assert steers(name)


@pytest.mark.parametrize(
    "name", [b"app.py", b"conftest_helpers.py", b"my_conftest.py", b"pth", b"setup.py", b"sitecustomize2.py", b"", b"."]
)
def test_names_that_do_not(name: bytes) -> None:
    assert not steers(name)


def collected(*paths: bytes, max_paths: int = 100) -> list[bytes]:
    collector = SteeringPaths(max_paths)
    for path in paths:
        collector.consider(path)
    return list(collector)


def test_the_outermost_steering_directory_counts() -> None:
    assert collected(b"challenge/a/conftest.py/x/conftest.py", b"challenge/a/b.py") == [b"challenge/a/conftest.py"]


def test_any_change_below_the_tests_replaces_them_all() -> None:
    assert collected(b"challenge/tests/data/x") == collected(b"challenge/tests") == [TESTS]
    assert collected(b"challenge/tests2/x", b"challenge/src/tests/x") == []


def test_deep_and_long_paths_are_replaced_above() -> None:
    deep = b"challenge/" + b"d/" * 200 + b"conftest.py"
    long = b"challenge/" + (b"n" * 250 + b"/") * 30 + b"conftest.py"
    for path, found in zip((deep, long), (collected(deep), collected(long)), strict=True):
        assert len(found) == 1 and path.startswith(found[0] + b"/") and len(found[0]) <= 3000


def test_too_many_are_replaced_by_fewer_above_them() -> None:
    paths = [b"challenge/%d/%d/conftest.py" % (one, two) for one in range(30) for two in range(30)]
    found = collected(*paths, max_paths=50)
    assert len(found) <= 50
    assert all(any(path == top or path.startswith(top + b"/") for top in found) for path in paths)


@given(st.lists(st.lists(st.sampled_from([b"a", b"b", b"a.b", b"a-"]), min_size=1, max_size=4).map(b"/".join)))
def test_outermost_covers_all_and_only(paths: list[bytes]) -> None:
    kept = outermost(paths)
    assert set(kept) <= set(paths)
    for path in paths:
        assert sum(path == top or path.startswith(top + b"/") for top in kept) == 1
