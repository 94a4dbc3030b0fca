"""How setup runs programs and speaks about what went wrong."""

import sys
from pathlib import Path

import pytest

from scripts.provision import __main__ as setup_main
from scripts.provision import go_modules, internet
from scripts.provision.commands import ask, run
from scripts.provision.console import SetupError


def test_a_failing_command_shows_its_last_words_and_the_remedy() -> None:
    program = "import sys; print('first'); print('the reason', file=sys.stderr); sys.exit(7)"
    with pytest.raises(SetupError) as failed:
        run([sys.executable, "-c", program], what="probing", remedy="do this")
    assert "probing failed with exit code 7" in failed.value.problem
    assert "the reason" in failed.value.problem
    assert str(failed.value).endswith("to do: do this")


def test_a_missing_program_is_named() -> None:
    with pytest.raises(SetupError, match="no-such-program is not installed"):
        run(["no-such-program"], what="probing", remedy="install it")


def test_a_command_without_end_is_ended() -> None:
    with pytest.raises(SetupError, match="no end after"):
        run([sys.executable, "-c", "import signal; signal.pause()"], what="w", remedy="r", seconds=0.2)


def test_a_question_that_cannot_be_asked_has_no_answer() -> None:
    assert ask(["no-such-program"]) is None
    assert ask([sys.executable, "-c", "raise SystemExit(1)"]) is None
    assert ask([sys.executable, "-c", "print('yes')"]) == "yes\n"


def test_offline_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAUNTLET_OFFLINE", "1")
    internet.reachable.cache_clear()
    assert internet.reachable("https://localhost:1/") is False
    internet.reachable.cache_clear()


def test_an_unreachable_address_is_no_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    internet.reachable.cache_clear()
    assert internet.reachable("http://127.0.0.1:9/") is False
    assert "does not answer" in capsys.readouterr().err
    internet.reachable.cache_clear()


@pytest.mark.parametrize(("printed", "good"), [("go1.23.4", False), ("go1.24", True), ("go1.26.8", True), ("", False)])
def test_an_old_go_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, good: bool
) -> None:
    go = tmp_path / "go"
    go.write_text(f"#!/bin/sh\necho '{printed}'\n", encoding="utf-8")
    go.chmod(0o755)
    monkeypatch.setattr(go_modules, "find", lambda _: go)
    if good:
        assert go_modules.go_command() == go
    else:
        with pytest.raises(SetupError) as refused:
            go_modules.go_command()
        assert "install Go 1.24 or newer" in refused.value.remedy


def test_a_failed_step_ends_setup_with_code_1_and_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing() -> None:
        raise SetupError("something is missing", "get it")

    monkeypatch.setattr(setup_main, "setup", failing)
    assert setup_main.main([]) == 1
    assert "setup failed: something is missing\n  to do: get it" in capsys.readouterr().err
