"""What the command line says about a challenge before anything is sent."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli import challenges, main
from formats.problems import FormatError
from tests.support.challenge_files import make_challenge


def with_network(directory: Path, text: str, **keys: object) -> Path:
    challenge = make_challenge(directory, network="compose.yaml", **keys)
    (challenge / "network").mkdir()
    (challenge / "network" / "compose.yaml").write_text(text)
    return challenge


def test_every_problem_of_a_network_file_has_code_place_and_fix(tmp_path: Path) -> None:
    text = "services:\n  a: {network_mode: bridge}\n  b: {network_mode: none}\n"
    with pytest.raises(FormatError) as caught:
        challenges.checked(with_network(tmp_path, text))
    lines = str(caught.value).splitlines()
    file = tmp_path / "network" / "compose.yaml"
    assert len(lines) == len(caught.value.problems) == 3
    assert {line.split(": ")[0] for line in lines} == {f"{file}:2", f"{file}:3"}
    assert all("R27 BACKEND_GAP" in line and "; " in line for line in lines), lines


def test_isolation_problems_name_the_line_of_the_description(tmp_path: Path) -> None:
    challenge = make_challenge(tmp_path, isolation={"level": "paranoid"})
    with pytest.raises(FormatError, match=r"challenge.yaml:1: isolation.level: R43 ISOLATION"):
        challenges.checked(challenge)


def test_a_closed_file_is_accepted_and_its_warnings_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "services:\n  a: {network_mode: null}\n"
    assert challenges.checked(with_network(tmp_path, text)).network == "compose.yaml"
    told = capsys.readouterr()
    assert told.out == "" and "warning: " in told.err and "compose.yaml:2" in told.err


def test_the_environment_of_the_person_who_submits_grants_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODE", "none")
    with pytest.raises(FormatError, match="R1 NET_MODE_UNSUPPORTED"):
        challenges.checked(with_network(tmp_path, "services: {a: {network_mode: '${MODE}'}}"))


def test_the_network_commands_are_part_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("services: {a: {network_mode: host}}")
    result = CliRunner().invoke(main.app, ["network", "check", str(tmp_path / "compose.yaml")])
    assert result.exit_code == 1 and "R1 NET_MODE_UNSUPPORTED" in result.stdout
