"""What doctor prints of a check: plain text, with the remedy where there is something to mend."""

from __future__ import annotations

from cli.diagnosis import line
from cli.doctor import Check


def test_a_good_check_is_one_line() -> None:
    assert line(Check("python", True, "3.11 ([/bold])", "reinstall")).plain == "✓ python 3.11 ([/bold])"


def test_a_bad_check_says_what_to_do() -> None:
    told = line(Check("docker", False, "no engine \x1b[31manswers", "run make run"))
    assert told.plain == "✗ docker no engine \\x1b[31manswers\n    → run make run"
