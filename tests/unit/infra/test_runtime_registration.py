"""Runtime entries in daemon.json: ours come and go, everything else stays byte for byte the same value."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.local import runtime_registration as registration
from infra.local.runtime_registration import RegistrationError, RuntimeEntry

OURS = RuntimeEntry("/x/runsc", ("--platform=systrap",))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
foreign_names = st.text().filter(lambda name: not name.startswith("gauntlet-"))
configurations = st.fixed_dictionaries(
    {},
    optional={
        "runtimes": st.dictionaries(foreign_names, json_values, min_size=1),
        "data-root": st.text(),
        "live-restore": st.booleans(),
    },
)


@given(configurations)
def test_merge_then_remove_is_the_same_configuration(config: dict[str, Any]) -> None:
    before = json.dumps(config)
    merged = registration.merge(config, {"gauntlet-runsc": OURS})
    assert json.dumps(config) == before
    assert {k: v for k, v in merged["runtimes"].items() if k != "gauntlet-runsc"} == config.get("runtimes", {})
    assert registration.remove(merged, ["gauntlet-runsc"]) == config


def test_our_own_older_entry_is_replaced() -> None:
    old = registration.merge({}, {"gauntlet-runsc": RuntimeEntry("/old")})
    assert registration.merge(old, {"gauntlet-runsc": OURS}) == {"runtimes": {"gauntlet-runsc": OURS.as_json()}}


@pytest.mark.parametrize("name", ["runsc", "runc", "", "Gauntlet-runsc"])
def test_entries_of_others_are_never_touched(name: str) -> None:
    with pytest.raises(RegistrationError, match="not ours"):
        registration.merge({}, {name: OURS})
    with pytest.raises(RegistrationError, match="not ours"):
        registration.remove({}, [name])


def test_a_default_runtime_is_not_pulled_away() -> None:
    config = registration.merge({"default-runtime": "gauntlet-runsc"}, {"gauntlet-runsc": OURS})
    with pytest.raises(RegistrationError, match="default runtime"):
        registration.remove(config, ["gauntlet-runsc"])


def test_the_sandbox_runtime_applies_seccomp_and_has_no_network() -> None:
    entry = registration.runsc_entry(
        Path("/x/runsc"), panic_log_directory=Path("/var/log/p"), extra_arguments=["--pod-init-config=/e"]
    )
    assert entry.arguments == (
        "--platform=systrap",
        "--network=none",
        "--oci-seccomp",
        "--panic-log=/var/log/p/%ID%.panic.log",
        "--pod-init-config=/e",
    )
    assert registration.panic_log(Path("/var/log/p"), "abc") == Path("/var/log/p/abc.panic.log")


@pytest.mark.parametrize("text", ["{", "[]", '"x"'])
def test_a_broken_file_is_named_and_left_as_it_is(tmp_path: Path, text: str) -> None:
    path = tmp_path / "daemon.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RegistrationError, match=str(path)):
        registration.read_config(path)
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("text", [None, "", "\n"])
def test_a_missing_or_empty_file_is_an_empty_configuration(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "daemon.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    assert registration.read_config(path) == {}


def test_writing_keeps_the_mode_and_leaves_no_scratch_file(tmp_path: Path) -> None:
    path = tmp_path / "etc" / "daemon.json"
    registration.write_config({"a": 1}, path)
    assert path.stat().st_mode & 0o777 == 0o644
    path.chmod(0o600)
    registration.write_config({"a": 2}, path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert registration.read_config(path) == {"a": 2}
    assert os.listdir(path.parent) == ["daemon.json"]


def test_a_failed_write_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "daemon.json"
    registration.write_config({"a": 1}, path)
    with pytest.raises(TypeError):
        registration.write_config({"a": object()}, path)
    assert registration.read_config(path) == {"a": 1}
    assert os.listdir(tmp_path) == ["daemon.json"]


@pytest.mark.parametrize(
    ("runtimes", "expected"),
    [
        ({"gauntlet-runsc": {"path": "/x/runsc", "runtimeArgs": ["--platform=systrap"], "status": {}}}, True),
        ({"gauntlet-runsc": {"path": "/x/runsc", "runtimeArgs": []}}, False),
        ({"gauntlet-runsc": {"path": "/y/runsc", "runtimeArgs": ["--platform=systrap"]}}, False),
        ({}, False),
        (None, False),
    ],
)
def test_registered_compares_path_and_arguments(runtimes: Any, expected: bool) -> None:
    assert registration.registered({"Runtimes": runtimes}, {"gauntlet-runsc": OURS}) is expected


def test_no_daemon_is_said_with_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(RegistrationError, match="scripts/setup"):
        registration.find_daemon(tmp_path / "docker.sock", tmp_path / "docker.pid")


def test_a_pid_file_that_names_another_program_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "docker.pid").write_text(str(os.getpid()), encoding="ascii")
    with pytest.raises(RegistrationError, match="no dockerd found"):
        registration.find_daemon(tmp_path / "docker.sock", tmp_path / "docker.pid")
