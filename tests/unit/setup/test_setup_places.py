"""Setup's directories: private, ours, never a link; what is published there is replaced in one step."""

import os
from pathlib import Path

import pytest

from scripts.provision import places
from scripts.provision.console import SetupError


def test_a_private_directory_is_made_closed(tmp_path: Path) -> None:
    made = places.private_directory(tmp_path / "a" / "b")
    assert made.stat().st_mode & 0o777 == 0o700
    assert places.private_directory(made) == made


def test_an_open_directory_is_refused_with_the_command_that_mends_it(tmp_path: Path) -> None:
    directory = tmp_path / "open"
    directory.mkdir()
    directory.chmod(0o755)
    with pytest.raises(SetupError) as refused:
        places.private_directory(directory)
    assert refused.value.remedy == f"chmod 700 {directory}"


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "real")
    with pytest.raises(SetupError, match="not a directory"):
        places.private_directory(link)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_somebody_elses_directory_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "theirs"
    directory.mkdir(mode=0o700)
    os.chown(directory, 12345, 12345)
    with pytest.raises(SetupError, match="belongs to user 12345"):
        places.private_directory(directory)


def test_both_roots_can_be_moved_by_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAUNTLET_CACHE_DIR", str(tmp_path / "c"))
    monkeypatch.setenv("GAUNTLET_STATE_DIR", str(tmp_path / "s"))
    assert places.cached("moby", "1") == tmp_path / "c" / "moby-1"
    assert places.state_directory() == tmp_path / "s"


def test_publishing_replaces_an_older_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAUNTLET_CACHE_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    for version in ("1", "2"):
        program = tmp_path / f"tool-{version}" / "tool"
        program.parent.mkdir()
        program.write_text("")
        link = places.publish(program)
    assert link == tmp_path / "bin" / "tool"
    assert link.readlink() == tmp_path / "tool-2" / "tool"
    assert [p.name for p in link.parent.iterdir()] == ["tool"]
