"""The supervisor's own Go tests, its formatting, and a short fuzz of its frame decoder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from scripts.provision.go_modules import go_command

SOURCE = Path(__file__).resolve().parents[3] / "images" / "supervisor"


def go(*arguments: str) -> str:
    done = subprocess.run(
        [str(go_command()), *arguments],
        cwd=SOURCE,
        env={**os.environ, "CGO_ENABLED": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


def test_go_unit_tests_pass() -> None:
    assert "ok" in go("test", "-count=1", ".")


def test_go_vet_and_format() -> None:
    go("vet", ".")
    gofmt = go_command().parent / "gofmt"
    unformatted = subprocess.run([str(gofmt), "-l", "."], cwd=SOURCE, capture_output=True, text=True, check=True)
    assert unformatted.stdout == ""


@pytest.mark.slow
def test_frame_decoder_survives_fuzzing(tmp_path: Path) -> None:
    assert "PASS" in go("test", "-run=^$", "-fuzz=FuzzDecoder", "-fuzztime=5s", f"-test.fuzzcachedir={tmp_path}", ".")


def test_only_the_standard_library_is_used() -> None:
    assert not (SOURCE / "go.sum").exists()
    assert "require" not in (SOURCE / "go.mod").read_text()
