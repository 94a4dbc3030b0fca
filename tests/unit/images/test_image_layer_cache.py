"""The cache of layers: made once a key, and never kept under a key whose sources changed meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from images import build
from images.stacks import ImageError


def test_a_layer_is_made_once(tmp_path: Path) -> None:
    made: list[Path] = []

    def make(root: Path) -> None:
        made.append(root)
        (root / "file").write_text("one")

    first = build._layer(tmp_path, lambda: "base-1", make)
    assert build._layer(tmp_path, lambda: "base-1", make) == first
    assert len(made) == 1


def test_sources_that_change_meanwhile_leave_nothing_behind(tmp_path: Path) -> None:
    """Seen: one build read the lock before another process wrote it, and was kept under the new lock's key."""
    lock = tmp_path / "packages.lock"
    lock.write_text("old")
    cache = tmp_path / "cache"
    cache.mkdir()

    def make(root: Path) -> None:
        (root / "file").write_text(lock.read_text())
        lock.write_text("new")

    with pytest.raises(ImageError, match="changed while it was built"):
        build._layer(cache, lambda: f"base-{lock.read_text()}", make)
    assert list(cache.iterdir()) == []
