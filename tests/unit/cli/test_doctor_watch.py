"""What doctor says about seeing workspaces: the mechanism and, when it is the fallback, why."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli import doctor, doctor_watch
from cli.doctor import Machine


def test_fanotify_is_said_with_its_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limit = tmp_path / "max_user_groups"
    limit.write_text("77\n")
    monkeypatch.setattr(doctor_watch, "_MAX_GROUPS", limit)
    found = doctor.filesystem_watch(Machine(None))
    assert found.ok
    assert found.detail.startswith("fanotify, for up to 77 attempts")


def test_the_fallback_is_said_with_its_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor_watch, "_OVERLAY_OPTION", tmp_path / "none")
    found = doctor.filesystem_watch(Machine(None))
    assert (found.ok, found.detail) == (True, "inotify with rescans: this kernel's overlay has no nfs_export")
    monkeypatch.setattr(doctor_watch, "_GROUP", 1 << 31)
    assert "'Invalid argument'" in doctor.filesystem_watch(Machine(None)).detail
