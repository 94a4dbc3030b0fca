"""What opening a handle makes of the kernel's answers: a race with a removal is no failure of the watch."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from daemon.fswatch import fanotify


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The kernel's answers in order: a descriptor, or an errno below zero; the last one again and again."""
    left: list[int] = []

    def open_by_handle_at(mount: int, handle: bytes, flags: int) -> int:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if answer >= 0:
            return answer
        ctypes.set_errno(-answer)
        return -1

    monkeypatch.setattr(fanotify, "_libc", SimpleNamespace(open_by_handle_at=open_by_handle_at))
    yield left
    ctypes.set_errno(0)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ([7], 7),
        ([-errno.ESTALE], None),
        ([-errno.ENOMEM, -errno.ESTALE], None),
        ([-errno.ENOMEM, -errno.ENOMEM, 7], 7),
    ],
)
def test_gone_is_told_from_there(answers: list[int], given: list[int], found: int | None) -> None:
    answers.extend(given)
    assert fanotify.open_handle(3, b"handle") == found


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOMEM])
def test_what_does_not_pass_is_an_error(answers: list[int], code: int) -> None:
    answers.append(-code)
    with pytest.raises(OSError, match="open_by_handle_at") as failed:
        fanotify.open_handle(3, b"handle")
    assert failed.value.errno == code
