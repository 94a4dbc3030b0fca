"""Text that is no UTF-8, on its way in and out of the command line."""

from __future__ import annotations

import json

import pytest
import typer

from cli.running import Exit, print_json, run


def test_an_argument_that_is_no_utf8_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        "att_\udcff".encode()

    with pytest.raises(typer.Exit) as left:
        run(work)
    assert left.value.exit_code == Exit.USAGE
    assert r"'att_\udcff' is no UTF-8" in capsys.readouterr().err


def test_an_answer_with_half_a_character_is_still_json(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"path": "é\udcff"})
    assert json.loads(capsys.readouterr().out.encode()) == {"path": "é\udcff"}
