"""What doctor says about the trace of sandboxes: off, unreadable, not listened to, well."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli import doctor
from cli.doctor import Machine


def machine(*arguments: str, name: str = "gauntlet-runsc-local") -> Machine:
    runtimes: dict[str, Any] = {name: {"path": "/runsc", "runtimeArgs": list(arguments)}}
    return Machine(SimpleNamespace(info=lambda: {"Runtimes": runtimes}))


@pytest.fixture
def session(tmp_path: Path) -> Path:
    path = tmp_path / "pod-init.json"
    sink = {"name": "remote", "config": {"endpoint": str(tmp_path / "s.sock")}}
    path.write_text(json.dumps({"trace_session": {"sinks": [sink]}}))
    return path


@pytest.fixture(autouse=True)
def send_buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "wmem_default"
    path.write_text("4194304\n")
    monkeypatch.setattr(doctor, "SEND_BUFFER", path)
    return path


def test_an_entry_without_a_session_means_that_telemetry_is_off() -> None:
    found = doctor.trace(machine("--network=none"))
    assert not found.ok
    assert "process and escape telemetry is off" in found.detail


def test_without_an_environment_or_an_engine_nothing_is_heard() -> None:
    assert "no environment is up" in doctor.trace(machine(name="gauntlet-runsc")).detail
    assert not doctor.trace(Machine(None)).ok


def test_a_session_that_is_gone_or_broken_is_named(tmp_path: Path) -> None:
    gone = doctor.trace(machine(f"--pod-init-config={tmp_path}/none.json"))
    assert not gone.ok
    assert "none.json" in gone.detail
    broken = tmp_path / "broken.json"
    broken.write_text('{"trace_session": []}')
    assert "cannot be read" in doctor.trace(machine(f"--pod-init-config={broken}")).detail


def test_a_sink_that_does_not_listen_is_said_to_stop_every_start(session: Path, tmp_path: Path) -> None:
    flag = f"--pod-init-config={session}"
    found = doctor.trace(machine(flag))
    assert not found.ok
    assert "no sandbox can start" in found.detail
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "s.sock"))
        assert doctor.trace(machine(flag)).ok


def test_an_environment_that_is_gone_is_told_beside_one_that_is_heard(session: Path, tmp_path: Path) -> None:
    runtimes = {
        "gauntlet-runsc-gone": {"path": "/runsc", "runtimeArgs": [f"--pod-init-config={tmp_path}/none.json"]},
        "gauntlet-runsc-local": {"path": "/runsc", "runtimeArgs": [f"--pod-init-config={session}"]},
    }
    both = Machine(SimpleNamespace(info=lambda: {"Runtimes": runtimes}))
    assert not doctor.trace(both).ok
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "s.sock"))
        found = doctor.trace(both)
    assert found.ok
    assert found.detail.startswith("heard: gauntlet-runsc-local; gauntlet-runsc-gone:")


def test_a_small_send_buffer_is_told_with_its_remedy(session: Path, tmp_path: Path, send_buffer: Path) -> None:
    send_buffer.write_text("212992\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "s.sock"))
        found = doctor.trace(machine(f"--pod-init-config={session}"))
    assert not found.ok
    assert found.remedy == "sysctl -w net.core.wmem_default=4194304"
