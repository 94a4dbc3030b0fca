"""A test program is built again exactly when something it is made of changes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.support.gobuild import CILIUM_VERDICT, GoProgram, built

pytestmark = pytest.mark.timeout(1800)


def _program(directory: Path) -> GoProgram:
    (directory / "go.mod").write_text("module x\n")
    (directory / "main.go").write_text("package main\n")
    return GoProgram("x", str(directory))


def test_the_key_follows_sources_settings_and_toolchain(tmp_path: Path) -> None:
    program = _program(tmp_path)
    first = program.key("go1.26")
    assert program.key("go1.26") == first
    assert program.key("go1.27") != first
    assert dataclasses.replace(program, ldflags="-X a=b").key("go1.26") != first
    (tmp_path / "notes.txt").write_text("no source")
    assert program.key("go1.26") == first
    (tmp_path / "main.go").write_text("package main // changed\n")
    assert program.key("go1.26") != first


def test_a_built_program_is_found_again_without_building() -> None:
    program = built(CILIUM_VERDICT)
    before = program.stat().st_mtime_ns
    assert built(CILIUM_VERDICT) == program
    assert program.stat().st_mtime_ns == before
