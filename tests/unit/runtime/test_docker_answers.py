"""What the engine says, as observations and events."""

import json
from pathlib import Path

import docker.errors
import pytest
import requests.exceptions

from daemon.runtime.docker_engine import translate
from daemon.runtime.docker_events import parse
from daemon.runtime.docker_leftovers import Runsc
from daemon.runtime.docker_observe import observation, wall_ns
from daemon.runtime.errors import CreateFailed, ImageMissing, NoSuchSandbox, RuntimeTimeout, RuntimeUnavailable
from daemon.runtime.types import ContainerState, EventKind

ANSWER = {
    "Id": "ab" * 32,
    "Name": "/main-sbx_1",
    "Image": "sha256:cc",
    "Config": {"Labels": {"gauntlet.entry_id": "sbx_1"}},
    "State": {
        "Status": "exited",
        "ExitCode": 137,
        "OOMKilled": True,
        "StartedAt": "2026-11-29T22:17:55.123456789Z",
        "FinishedAt": "2026-11-29T22:18:00Z",
        "Error": "",
    },
}


def test_ended_container() -> None:
    seen = observation(ANSWER)
    assert (seen.state, seen.exit_code, seen.oom_killed) == (ContainerState.EXITED, 137, True)
    assert (seen.name, seen.entry_id, seen.image_digest) == ("main-sbx_1", "sbx_1", "sha256:cc")
    assert seen.finished_at_ns is not None
    assert seen.started_at_ns is not None
    assert seen.finished_at_ns - seen.started_at_ns == 4_876_543_211


def test_running_container_has_no_end() -> None:
    state = {"Status": "running", "ExitCode": 0, "FinishedAt": "0001-01-01T00:00:00Z"}
    seen = observation({**ANSWER, "State": {**ANSWER["State"], **state}})
    assert (seen.state, seen.exit_code, seen.finished_at_ns) == (ContainerState.RUNNING, None, None)


def test_unknown_state_is_not_taken_for_an_end() -> None:
    seen = observation({**ANSWER, "State": {**ANSWER["State"], "Status": "hibernating"}})
    assert (seen.state, seen.exit_code) == (ContainerState.UNKNOWN, None)
    assert not seen.state.live


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000_000),
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("1970-01-01T01:00:00.000000001+01:00", 1),
        ("0001-01-01T00:00:00Z", None),
    ],
)
def test_wall_clock(text: str, wanted: int | None) -> None:
    assert wall_ns(text) == wanted


def test_not_a_time() -> None:
    with pytest.raises(ValueError, match="yesterday"):
        wall_ns("yesterday")


def test_events() -> None:
    attributes = {"exitCode": "3", "gauntlet.entry_id": "s", "x": "y"}
    die = {"Action": "die", "Actor": {"ID": "ab", "Attributes": attributes}, "timeNano": 7}
    event = parse(json.dumps(die).encode())
    assert event is not None
    assert (event.kind, event.container_id, event.exit_code, event.time_ns) == (EventKind.DIE, "ab", 3, 7)
    assert event.labels == {"gauntlet.entry_id": "s"}
    oom = parse(b'{"Action":"oom","Actor":{"ID":"ab","Attributes":{}},"timeNano":7}')
    assert oom is not None
    assert (oom.kind, oom.exit_code) == (EventKind.OOM, None)
    assert parse(b'{"Action":"start","Actor":{"ID":"ab"}}') is None
    assert parse(b"  ") is None


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (docker.errors.ImageNotFound("x"), ImageMissing),
        (docker.errors.NotFound("x"), NoSuchSandbox),
        (docker.errors.APIError("x"), CreateFailed),
        (docker.errors.DockerException("x"), RuntimeUnavailable),
        (requests.exceptions.ConnectionError(), RuntimeUnavailable),
        (requests.exceptions.ReadTimeout(), RuntimeTimeout),
        (FileNotFoundError(), type(None)),
        (ConnectionRefusedError(), RuntimeUnavailable),
    ],
)
def test_errors(error: Exception, wanted: type) -> None:
    assert type(translate(error)) is wanted


def test_registered_runsc() -> None:
    entry = {"path": "/opt/runsc", "runtimeArgs": ["--platform=systrap", "--panic-log=/var/log/p/%ID%.log"]}
    runsc = Runsc.registered(entry, Path("/run/moby"))
    assert (runsc.program, runsc.panic_log) == (Path("/opt/runsc"), "/var/log/p/%ID%.log")
    assert Runsc.registered({"path": "/opt/runsc"}, Path("/run/moby")).panic_files("ab") == []


def test_panic_log_shared_by_all_tells_nothing(tmp_path: Path) -> None:
    directory = tmp_path
    for name in ("ab.1.log", "cd.1.log", "all.log"):
        (directory / name).touch()
    one = Runsc(Path("/x"), directory, f"{directory}/%ID%.%TIMESTAMP%.log")
    assert [path.name for path in one.panic_files("ab")] == ["ab.1.log"]
    assert Runsc(Path("/x"), directory, f"{directory}/all.log").panic_files("ab") == []
