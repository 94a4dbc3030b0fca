"""The tests' own engines: both flavours start, run a sandbox in runsc, and leave nothing behind."""

import contextlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from infra.local import runtime_registration as registration
from tests.support.engines import FLAVOURS, Flavour, mounts_below, processes_below, running_engine

pytestmark = [pytest.mark.docker]
HOST_BUSYBOX_PROGRAM = b"""
package main
import "os"
func main() { b, _ := os.ReadFile("/proc/version"); os.Stdout.Write(b) }
"""


def image_of(program: Path) -> bytes:
    """Return a file system archive that holds one static program."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as tar:
        tar.add(program, "probe")
    return body.getvalue()


@pytest.fixture(scope="module")
def static_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a static program that prints the kernel's version as it sees it."""
    import subprocess

    directory = tmp_path_factory.mktemp("probe")
    (directory / "main.go").write_bytes(HOST_BUSYBOX_PROGRAM)
    (directory / "go.mod").write_text("module probe\n\ngo 1.24\n", encoding="utf-8")
    subprocess.run(
        ["go", "build", "-o", "probe", "."],
        cwd=directory,
        env={**os.environ, "CGO_ENABLED": "0", "PATH": os.environ["PATH"] + ":/usr/local/go/bin"},
        check=True,
        timeout=120,
    )
    return directory / "probe"


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_an_engine_runs_a_sandbox_and_leaves_nothing(flavour: Flavour, static_program: Path) -> None:
    with running_engine(flavour) as engine:
        with contextlib.closing(engine.client()) as client:
            client.api.import_image_from_data(image_of(static_program), repository="probe", tag="1")
            container = client.containers.create("probe:1", ["/probe"], runtime="gauntlet-runsc", network_mode="none")
            container.start()
            assert container.wait(timeout=30)["StatusCode"] == 0
            assert b"gvisor" in container.logs().lower()
            panic = registration.panic_log(engine.panic_logs, container.id)
            assert panic.exists() and panic.stat().st_size == 0
        assert processes_below(engine.root)
        root = engine.root
    assert not root.exists()
    assert mounts_below(root) == []
    assert processes_below(root) == []


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_registration_is_live_and_leaves_other_entries_alone(flavour: Flavour) -> None:
    other = registration.RuntimeEntry("/usr/bin/false", ("--somebody-elses",))
    ours = registration.runsc_entry(Path("/opt/other/runsc"), extra_arguments=["--debug"])
    with running_engine(flavour, extra_runtimes={"runsc": other}) as engine:
        daemon = registration.find_daemon(engine.socket, engine.root / "dockerd.pid")
        assert (daemon.pid, daemon.config) == (engine.pid, engine.config)
        before = registration.read_config(engine.config)
        with contextlib.closing(engine.client()) as client:
            assert registration.apply(client, daemon, {"gauntlet-probe": ours}) is True
            assert registration.registered(client.info(), {"gauntlet-probe": ours, "runsc": other})
            assert registration.apply(client, daemon, {"gauntlet-probe": ours}) is False
            assert registration.withdraw(client, daemon, ["gauntlet-probe"]) is True
            assert "gauntlet-probe" not in client.info()["Runtimes"]
            assert registration.registered(client.info(), {"runsc": other})
        assert registration.read_config(engine.config) == before
