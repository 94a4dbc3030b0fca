"""Paths by file handle: as they were when the event happened, whatever was renamed or removed since."""

from __future__ import annotations

import pytest

from daemon.fswatch import directories
from daemon.fswatch.directories import Directories
from daemon.fswatch.origins import Origins

ROOT, A, B, C = b"root", b"a", b"b", b"c"


class Kernel:
    """What the kernel would answer now."""

    def __init__(self, **paths: bytes) -> None:
        self.paths = {name.encode(): path for name, path in paths.items()}
        self.asked: list[bytes] = []

    def resolve(self, handle: bytes) -> bytes | None:
        self.asked.append(handle)
        return self.paths.get(handle)


def test_new_directories_are_never_asked_for():
    kernel = Kernel(root=b"")
    tree = Directories(kernel.resolve)
    tree.entered(A, ROOT, b"x", moved=False)
    tree.entered(B, A, b"y", moved=False)
    assert (tree.path(B), tree.path(A), tree.path(ROOT)) == (b"x/y", b"x", b"")
    assert kernel.asked == [ROOT]


def test_a_rename_moves_everything_below():
    tree = Directories(Kernel(root=b"submissions").resolve)
    tree.entered(A, ROOT, b"x", moved=False)
    tree.entered(B, A, b"y", moved=False)
    assert tree.path(B) == b"submissions/x/y"
    tree.entered(A, ROOT, b"z", moved=True)
    assert tree.path(B) == b"submissions/z/y"
    tree.entered(C, ROOT, b"x", moved=False)
    assert (tree.path(C), tree.path(B)) == (b"submissions/x", b"submissions/z/y")


def test_a_removed_directory_is_asked_for_and_gone():
    kernel = Kernel(root=b"")
    tree = Directories(kernel.resolve)
    tree.entered(A, ROOT, b"x", moved=False)
    tree.removed(A)
    assert tree.path(A) is None


def test_a_move_of_one_that_nobody_names_asks_again_about_all():
    kernel = Kernel(root=b"", a=b"old")
    tree = Directories(kernel.resolve)
    assert tree.path(A) == b"old"
    kernel.paths[A] = b"new"
    assert tree.path(A) == b"old"
    tree.entered(None, ROOT, b"new", moved=True)
    assert tree.path(A) == b"new"


def test_a_directory_is_never_below_itself():
    kernel = Kernel(root=b"", a=b"x", b=b"y")
    tree = Directories(kernel.resolve)
    tree.entered(A, ROOT, b"x", moved=False)
    tree.entered(B, A, b"y", moved=False)
    tree.entered(A, B, b"x", moved=True)  # B must have left A before: a report was merged
    assert (tree.path(A), tree.path(B)) == (b"x", b"y")


def test_what_was_found_at_the_start_answers_for_what_is_gone():
    tree = Directories(Kernel(root=b"").resolve, Origins({A: b"src", B: b"src/deep"}, {b"src": A}))
    assert (tree.path(A), tree.path(B), tree.path(C)) == (b"src", b"src/deep", None)
    assert (tree.handle(b"src"), tree.handle(b"docs")) == (A, None)
    tree.forget_all()
    assert tree.path(B) == b"src/deep"


def test_a_tree_too_deep_has_no_path():
    tree = Directories(Kernel(root=b"").resolve)
    parent = ROOT
    for number in range(300):
        child = b"%d" % number
        tree.entered(child, parent, b"n" * 255, moved=False)
        parent = child
    assert tree.path(b"10") == b"/".join([b"n" * 255] * 11)
    assert tree.path(parent) is None


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(directories, "MAX_DIRECTORIES", 10)
    kernel = Kernel(root=b"")
    tree = Directories(kernel.resolve)
    for number in range(25):
        tree.entered(b"d%d" % number, ROOT, b"%d" % number, moved=False)
    assert tree.path(b"d24") == b"24"
    assert tree.path(b"d0") is None  # the kernel is asked, and this one knows nothing of it
    assert kernel.asked[-1] == b"d0"
