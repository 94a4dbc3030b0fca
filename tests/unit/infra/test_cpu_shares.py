"""The services' control group, on both kinds of hierarchy, in a directory that looks like one."""

from pathlib import Path

import pytest

from infra.local.shares import ensure, group, remove


@pytest.fixture(params=["v1", "v2"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "v1":
        (tmp_path / "cpu").mkdir()
        (tmp_path / "cpu" / "cpu.shares").write_text("1024")
    else:
        (tmp_path / "cgroup.controllers").write_text("cpuset cpu memory pids\n")
    return tmp_path


def test_it_weighs_eight_times_what_a_group_has_by_itself(root: Path) -> None:
    joined_by = Path(ensure("local", root))
    assert joined_by.name == "cgroup.procs"
    assert joined_by.parent.name == "gauntlet-local"
    v1 = joined_by.parent / "cpu.shares"
    found, default = (v1, 1024) if v1.exists() else (joined_by.parent / "cpu.weight", 100)
    assert int(found.read_text()) == 8 * default
    assert ensure("local", root) == str(joined_by)  # again, as the next service does


def test_the_unified_hierarchy_hands_the_controller_down(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu\n")
    ensure("local", tmp_path)
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+cpu"


def test_a_group_in_use_stays_and_an_empty_one_goes(root: Path) -> None:
    directory = Path(ensure("local", root)).parent
    assert remove("local", root) is False  # a plain directory with files refuses rmdir, as a group with processes does
    for file in directory.iterdir():
        file.unlink()
    assert remove("local", root) is True
    assert not directory.exists()
    assert remove("local", root) is True


def test_a_machine_without_the_controller_has_no_group(tmp_path: Path) -> None:
    assert group("local", tmp_path) is None
    assert ensure("local", tmp_path) == ""
    assert remove("local", tmp_path) is True
