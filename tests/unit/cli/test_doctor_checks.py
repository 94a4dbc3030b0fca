"""What doctor says about each part, well or missing; the engine is a stand-in, the rest is this machine."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli import doctor
from cli.doctor import Machine


class Engine:
    """A Docker client as far as doctor asks it."""

    def __init__(
        self, *, api: str = "1.56", runtimes: dict[str, Any] | None = None, tags: tuple[str, ...] = ()
    ) -> None:
        self._api = api
        self._runtimes = runtimes or {}
        self.images = SimpleNamespace(list=lambda _: [SimpleNamespace(tags=list(tags))])

    def version(self) -> dict[str, Any]:
        return {"Version": "29", "ApiVersion": self._api}

    def info(self) -> dict[str, Any]:
        return {"Runtimes": self._runtimes, "DockerRootDir": "/"}


def program(directory: Path, name: str, output: str) -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{output}'\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give doctor an empty machine, but for /usr/sbin."""
    monkeypatch.setenv("GAUNTLET_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    return tmp_path / "bin"


def test_without_an_engine_every_docker_check_says_so_and_what_to_run() -> None:
    machine = Machine(None, "connection refused")
    for check in (doctor.docker_engine, doctor.runtime, doctor.image):
        found = check(machine)
        assert not found.ok
        assert found.remedy == "run: scripts/setup"
    assert "connection refused" in doctor.docker_engine(machine).detail


@pytest.mark.parametrize(("api", "ok"), [("1.39", False), ("1.40", True), ("1.56", True), ("2.0", True)])
def test_an_engine_too_old_is_told(api: str, ok: bool) -> None:
    assert doctor.docker_engine(Machine(Engine(api=api))).ok is ok


@pytest.mark.parametrize(
    ("runtimes", "ok", "detail"),
    [
        ({}, False, "not registered"),
        ({"gauntlet-runsc": {"path": "/bin/sh", "runtimeArgs": ["--network=none"]}}, False, "lacks --oci-seccomp"),
        ({"gauntlet-runsc": {"path": "/gone", "runtimeArgs": ["--network=none", "--oci-seccomp"]}}, False, "is gone"),
        ({"gauntlet-runsc": {"path": "/bin/sh", "runtimeArgs": ["--network=none", "--oci-seccomp"]}}, True, "/bin/sh"),
    ],
)
def test_the_runtime_entry_is_looked_into(runtimes: dict[str, Any], ok: bool, detail: str) -> None:
    found = doctor.runtime(Machine(Engine(runtimes=runtimes)))
    assert found.ok is ok
    assert detail in found.detail


def test_images_are_listed_or_missed() -> None:
    assert doctor.image(Machine(Engine(tags=("gauntlet-sandbox:python311-012345678",)))).ok
    assert not doctor.image(Machine(Engine())).ok


@pytest.mark.parametrize(
    ("printed", "ok"),
    [("runsc version release-20221219.0", False), ("runsc version release-20260905", True), ("?", False)],
)
def test_an_old_runsc_is_told(tools: Path, printed: str, ok: bool) -> None:
    program(tools, "runsc", printed)
    assert doctor.runsc(Machine(None)).ok is ok


def test_a_missing_runsc_and_pulumi_are_told(tools: Path) -> None:
    assert doctor.runsc(Machine(None)).detail == "not found"
    assert doctor.pulumi(Machine(None)).detail == "not found"
    assert not doctor.language_host(Machine(None)).ok


def test_a_language_host_is_found_beside_the_cli_or_on_path(tools: Path, tmp_path: Path) -> None:
    cli = program(tmp_path / "pulumi-1", "pulumi", "1.2.3")
    tools.mkdir(exist_ok=True)
    (tools / "pulumi").symlink_to(cli)
    assert doctor.pulumi(Machine(None)).detail.startswith("1.2.3 ")
    assert not doctor.language_host(Machine(None)).ok
    beside = program(tmp_path / "pulumi-1", "pulumi-language-python", "")
    assert doctor.language_host(Machine(None)).detail == str(beside)


def test_this_machine_can_hold_workspaces() -> None:
    machine = Machine(None)
    for check in (doctor.kernel, doctor.programs, doctor.python_environment):
        found = check(machine)
        assert found.ok, found


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: SimpleNamespace(free=9 * 1024**3))
    found = doctor.disk(Machine(None))
    assert (found.ok, found.detail, found.remedy) == (False, "9 GB free under /var", "free 10 GB there")


def test_every_check_has_a_name_of_its_own_and_a_remedy() -> None:
    checks = doctor.run_checks()
    assert len({check.name for check in checks}) == len(doctor.CHECKS)
    assert all(check.remedy for check in checks)
