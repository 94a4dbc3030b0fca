"""The collector's configuration: one clear message for what is wrong, and the documented exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from records.collector.__main__ import main


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("endpoint: unix:///tmp/x\n", "database_url: is missing"),
        ("endpoint: a\ndatabase_url: b\nsocket_grup: c\n", "did you mean 'socket_group'"),
        ("- a\n", "not a mapping"),
        ("endpoint: [\n", "not valid YAML"),
        ("endpoint: unix:///tmp/x\ndatabase_url: mysql://x\n", "only sqlite and postgresql"),
        (
            "endpoint: unix:///tmp/x\ndatabase_url: sqlite:////tmp/x.db\nsocket_group: no-such-group\n",
            "socket_group: no group",
        ),
    ],
)
def test_a_bad_configuration_is_usage(tmp_path: Path, text: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "collector.yaml"
    path.write_text(text)
    assert main(["--config", str(path)]) == 2
    assert told in capsys.readouterr().err


def test_an_absent_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", str(tmp_path / "absent.yaml")]) == 2
    assert "absent.yaml" in capsys.readouterr().err


def test_an_address_beyond_loopback_is_not_served(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "collector.yaml"
    path.write_text(f"endpoint: 0.0.0.0:5000\ndatabase_url: sqlite:///{tmp_path}/e.db\n")
    assert main(["--config", str(path)]) == 1
    assert "loopback" in "".join(capsys.readouterr())
