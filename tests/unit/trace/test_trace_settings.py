"""The sink's settings, and the socket buffer that sandboxes need."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from daemon.trace.__main__ import main, raise_send_buffer, read_config
from formats.problems import FormatError


def test_a_small_buffer_is_raised_and_a_large_one_left(tmp_path: Path) -> None:
    path = tmp_path / "wmem_default"
    path.write_text("212992\n")
    raise_send_buffer(path)
    assert path.read_text() == "4194304"
    path.write_text("8388608\n")
    raise_send_buffer(path)
    assert path.read_text() == "8388608\n"


def test_a_host_that_has_no_such_setting_is_no_reason_to_hear_nothing(tmp_path: Path) -> None:
    raise_send_buffer(tmp_path / "none")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"endpoint": "unix:///x"}, "trace_socket"),
        ({"trace_socket": "/x", "endpoint": "", "nodes": {}, "files": "/f", "runsc": "/r"}, "nodes"),
        (
            {"trace_socket": "/x", "endpoint": "e", "nodes": {"n": "/n"}, "files": "/f", "runsc": "/r", "nodse": 1},
            "nodse",
        ),
    ],
)
def test_a_bad_configuration_names_file_and_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], value: dict[str, object], words: str
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(value))
    with pytest.raises(FormatError, match=words):
        read_config(path)
    assert main(["--config", str(path)]) == 2
    assert str(path) in capsys.readouterr().err


def test_a_missing_configuration_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", str(tmp_path / "none.json")]) == 2
    assert "none.json" in capsys.readouterr().err
