"""Artifacts of many attempts stay within a budget: the oldest contents go, every diff stays."""

from __future__ import annotations

import os
from pathlib import Path

from daemon.workspace.artifacts import ArtifactLimits, Artifacts


def keep(directory: Path, name: str, size: int, age: int) -> Path:
    home = directory / name
    home.mkdir()
    (home / "diff.jsonl").write_text("{}\n")
    (home / "changes.tar").write_bytes(b"x" * size)
    os.utime(home / "changes.tar", ns=(0, 10**9 * (100 - age)))
    return home


def test_the_oldest_contents_go_and_the_newest_stays_whatever_its_size(tmp_path):
    homes = [keep(tmp_path, f"att_{n}", 100, age=n) for n in range(4)]
    artifacts = Artifacts(tmp_path, ArtifactLimits(kept_changes_bytes=250))
    assert sorted(artifacts.prune()) == [str(homes[n] / "changes.tar") for n in (2, 3)]
    assert all((home / "diff.jsonl").exists() for home in homes)
    assert artifacts.prune() == []
    big = keep(tmp_path, "att_big", 1000, age=50)
    artifacts.prune(spare=big)
    assert (big / "changes.tar").exists()
    assert not (homes[0] / "changes.tar").exists()
