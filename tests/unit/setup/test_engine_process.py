"""The dockerd that setup starts: recognised by more than its pid, ended only if it is that very process."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.provision import engine_process
from scripts.provision.console import SetupError


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GAUNTLET_STATE_DIR", str(tmp_path))
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    yield process
    process.kill()
    process.wait()


def record(pid: int, identity: str | None) -> None:
    engine_process.record_file().write_text(json.dumps({"pid": pid, "identity": identity}), encoding="utf-8")


def test_without_a_record_there_is_none_of_ours() -> None:
    assert engine_process.recorded_pid() is None
    assert engine_process.stop() is False


def test_the_recorded_process_is_ended_and_forgotten(sleeper: "subprocess.Popen[bytes]") -> None:
    record(sleeper.pid, engine_process.identity(sleeper.pid))
    assert engine_process.recorded_pid() == sleeper.pid
    assert engine_process.stop() is True
    assert sleeper.wait(10) == -signal.SIGTERM
    assert not engine_process.record_file().exists()


def test_another_process_with_the_same_pid_is_left_alone(sleeper: "subprocess.Popen[bytes]") -> None:
    record(sleeper.pid, "another-boot/12345")
    assert engine_process.ours_is_running() is False
    assert engine_process.stop() is False
    assert sleeper.poll() is None
    assert not engine_process.record_file().exists()


def test_a_zombie_counts_as_ended() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert engine_process.identity(process.pid) is None
    process.wait()
    assert engine_process.identity(process.pid) is None


def test_a_broken_record_names_the_file_to_remove() -> None:
    engine_process.record_file().write_text("{", encoding="utf-8")
    with pytest.raises(SetupError) as refused:
        engine_process.recorded_pid()
    assert refused.value.remedy == f"remove {engine_process.record_file()}"


def test_settings_of_the_file_are_not_given_as_flags_too() -> None:
    assert "--bridge=none" in engine_process.engine_flags([])
    assert engine_process.engine_flags(["bridge", "iptables", "ip6tables", "userland-proxy"]) == []
