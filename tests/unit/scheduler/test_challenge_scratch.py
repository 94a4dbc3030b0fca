"""A scratch directory that vanishes while it is being removed is removed."""

from __future__ import annotations

import os
from pathlib import Path

from scheduler import challenges


def test_a_tree_that_goes_meanwhile_is_no_error(tmp_path, monkeypatch):
    tree = tmp_path / "tree"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "a" / "file").write_text("x")
    walk = os.walk

    def walk_and_lose(directory):
        for root, names, files in walk(directory):
            yield root, names, files
            if Path(root) == tree:
                (tree / "a" / "b").rmdir()

    monkeypatch.setattr(challenges.os, "walk", walk_and_lose)
    challenges._remove(tree)
    assert not tree.exists()
    challenges._remove(tree)
