"""The lock file: read strictly, and explicit about a version that the archive no longer holds."""

from pathlib import Path

import pytest

from images import lock
from images.stacks import STACKS, ImageError, find_stack

FILE = Path("images/x/packages.lock")


def test_what_is_written_is_read_back() -> None:
    pins = {"git": "1:2.39.5-0+deb12u2", "curl": "7.88.1-10"}
    text = lock.render(pins)
    assert lock.parse(text, FILE) == pins
    assert text.splitlines()[1:] == ["curl 7.88.1-10", "git 1:2.39.5-0+deb12u2"]


@pytest.mark.parametrize("line", ["git", "git 1 2", "curl 1\ncurl 2"])
def test_a_bad_line_is_named(line: str) -> None:
    with pytest.raises(ImageError, match=r"images/x/packages.lock:\d+: expected"):
        lock.parse(line, FILE)


def test_a_vanished_version_names_the_new_one_and_the_remedy() -> None:
    pins = {"git": "1.0", "curl": "2.0", "gone": "3"}
    with pytest.raises(ImageError) as refused:
        lock.require_available(pins, {"git": ["1.1", "1.2"], "curl": ["2.0"]}, FILE, "python311")
    message = str(refused.value)
    assert "git 1.0 is gone; the archive has 1.1, 1.2" in message
    assert "gone 3 is gone; the archive has no such package" in message
    assert "curl" not in message
    assert "python -m images pin python311" in message


def test_versions_that_are_there_pass() -> None:
    lock.require_available({"git": "1.0"}, {"git": ["1.1", "1.0"]}, FILE, "python311")


@pytest.mark.parametrize(
    ("installed", "complaint"),
    [
        ({"git": "1", "curl": "2"}, "curl: locked not at all, installed 2"),
        ({}, "git: locked 1, installed not at all"),
        ({"git": "9"}, "git: locked 1, installed 9"),
    ],
)
def test_other_packages_than_locked_are_refused(installed: dict[str, str], complaint: str) -> None:
    with pytest.raises(ImageError, match=complaint):
        lock.require_installed({"git": "1"}, installed, FILE, "python311")


@pytest.mark.parametrize("name", sorted(STACKS))
def test_every_stack_is_locked_completely(name: str) -> None:
    stack = find_stack(name)
    pins = lock.parse(stack.lock_file.read_text(encoding="utf-8"), stack.lock_file)
    assert set(stack.packages) <= set(pins)
    assert stack.lock_file.read_text(encoding="utf-8") == lock.render(pins)


def test_an_unknown_stack_names_the_known_ones() -> None:
    with pytest.raises(ImageError, match="unknown stack 'python99': known are python311"):
        find_stack("python99")
