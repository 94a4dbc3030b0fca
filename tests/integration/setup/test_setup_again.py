"""`scripts/setup` on a machine that is set up: looks, changes nothing, and leaves the running engine alone."""

import os
import subprocess
from pathlib import Path

import pytest

from infra.local import runtime_registration as registration
from scripts.provision.places import bin_directory

pytestmark = [pytest.mark.docker]
REPOSITORY = Path(__file__).resolve().parents[3]


def setup(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(REPOSITORY / "scripts" / "setup"), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )


def state() -> dict[str, object]:
    daemon = registration.find_daemon()
    return {
        "daemon": daemon,
        "configuration": registration.read_config(daemon.config),
        "tools": {path.name: path.resolve() for path in bin_directory().iterdir()},
        "environment": (REPOSITORY / ".venv" / "bin" / "gauntlet").read_bytes(),
    }


def test_again_changes_nothing() -> None:
    before = state()
    done = setup()
    assert done.returncode == 0, done.stderr
    assert state() == before
    assert "building" not in done.stderr and "installing" not in done.stderr
    for part in ("python", "gvisor", "docker", "pulumi", "done"):
        assert f"setup: {part}" in done.stderr


def test_no_tool_is_a_link_into_a_clone() -> None:
    """Clones come and go and share the cache."""
    assert [path for path in bin_directory().iterdir() if (path.resolve().parents[1] / "tools").is_dir()] == []
    assert [path for path in bin_directory().iterdir() if path.resolve().is_relative_to(REPOSITORY)] == []


def test_a_cache_that_others_can_write_ends_setup_with_the_command_that_mends_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    done = setup(GAUNTLET_CACHE_DIR=str(tmp_path))
    assert done.returncode == 1
    assert f"to do: chmod 700 {tmp_path}" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_is_down_where_docker_host_points_is_one_clear_message(tmp_path: Path) -> None:
    done = setup(DOCKER_HOST=f"unix://{tmp_path}/nobody.sock")
    assert done.returncode == 1
    assert "no engine answers there" in done.stderr
    assert "unset DOCKER_HOST" in done.stderr
