"""Setup's own dockerd: started where none runs, recorded, ended by `--stop-engine`, with nothing left of it."""

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from scripts.provision import __main__ as setup_main
from scripts.provision import engine_process
from scripts.provision.console import SetupError
from scripts.provision.docker_engine import current_engine
from tests.support.engines import mounts_below, processes_below

pytestmark = [pytest.mark.docker]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give setup a configuration of its own, so that the machine's engine is not involved."""
    root = Path(tempfile.mkdtemp(prefix="g-set-", dir="/var/tmp"))
    config = {
        "data-root": str(root / "data"),
        "exec-root": str(root / "exec"),
        "pidfile": str(root / "dockerd.pid"),
        "hosts": [f"unix://{root}/docker.sock"],
        "bridge": "none",
    }
    (root / "daemon.json").write_text(json.dumps(config), encoding="utf-8")
    monkeypatch.setattr(engine_process, "CONFIG", root / "daemon.json")
    monkeypatch.setenv("GAUNTLET_STATE_DIR", str(root / "state"))
    yield root
    engine_process.stop()
    assert processes_below(root) == []
    assert mounts_below(root) == []
    shutil.rmtree(root)


def test_it_is_started_recorded_and_ended(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = current_engine()
    pid = engine_process.start(engine.dockerd, engine.directories, without_network=True)
    assert f"no engine was running: started one, pid {pid}" in capsys.readouterr().err
    assert engine_process.recorded_pid() == pid
    with contextlib.closing(docker.DockerClient(base_url=f"unix://{place}/docker.sock")) as client:
        assert client.info()["DockerRootDir"] == str(place / "data")
    assert processes_below(place)
    assert setup_main.main(["--stop-engine"]) == 0
    assert engine_process.identity(pid) is None
    assert not engine_process.ours_is_running()
    assert setup_main.main(["--stop-engine"]) == 0
    assert "one that setup found is left alone" in capsys.readouterr().err


def test_a_configuration_it_cannot_start_with_points_at_the_log(place: Path) -> None:
    engine = current_engine()
    config = json.loads((place / "daemon.json").read_text(encoding="utf-8")) | {"no-such-setting": True}
    (place / "daemon.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(SetupError, match="dockerd ended with exit code 1") as failed:
        engine_process.start(engine.dockerd, engine.directories, without_network=True)
    assert str(engine_process.log_file()) in failed.value.remedy
    assert "no-such-setting" in engine_process.log_file().read_text(encoding="utf-8")
