"""The session that sandboxes are created with."""

from __future__ import annotations

import json
import stat
from pathlib import Path

from daemon.trace.session import CONTEXT, session, write_files


def test_no_text_of_the_agents_is_asked_for_as_context_but_where_numbers_are_told_beside_it() -> None:
    made = session(Path("/run/x.sock"))
    asked = {point["name"]: point["context_fields"] for point in made["points"]}
    for name, number in (("execve", 59), ("execveat", 322)):
        assert asked.pop(f"syscall/{name}/exit") == [*CONTEXT, "cwd"]
        assert f"syscall/sysno/{number}/exit" in asked
    assert "syscall/sysno/158/exit" in asked
    assert all(fields == list(CONTEXT) for fields in asked.values())
    assert not {"cwd", "process_name", "container_id"} & set(CONTEXT)
    assert not [point for point in made["points"] if "optional_fields" in point]


def test_it_fails_closed_and_survives_a_field_that_a_runsc_lacks() -> None:
    made = session(Path("/run/x.sock"))
    (sink,) = made["sinks"]
    assert sink["ignore_setup_error"] is False
    assert made["ignore_missing"] is True
    assert sink["config"] == {"endpoint": "/run/x.sock", "retries": 500, "backoff": "25us", "backoff_max": "10ms"}


def test_signals_are_told_at_both_ends_and_denials_at_their_end() -> None:
    names = [point["name"] for point in session(Path("/x"))["points"]]
    for number in (62, 129, 200, 234, 297):
        assert {f"syscall/sysno/{number}/enter", f"syscall/sysno/{number}/exit"} <= set(names)
    for number in (56, 57, 58, 165):
        assert f"syscall/sysno/{number}/exit" in names
        assert f"syscall/sysno/{number}/enter" not in names
    for number in (155, 159, 164, 165, 166, 227):
        assert f"syscall/sysno/{number}/exit" in names
    assert {"container/start", "sentry/clone", "sentry/execve", "sentry/exit_notify_parent"} <= set(names)
    assert len(names) == len(set(names))


def test_the_files_hold_it_in_both_shapes_and_are_roots_alone(tmp_path: Path) -> None:
    write_files(Path("/run/x.sock"), tmp_path / "pod-init.json", tmp_path / "session.json")
    attach = json.loads((tmp_path / "session.json").read_text())
    assert json.loads((tmp_path / "pod-init.json").read_text()) == {"trace_session": attach}
    assert {path.name for path in tmp_path.iterdir()} == {"pod-init.json", "session.json"}
    assert stat.S_IMODE((tmp_path / "pod-init.json").stat().st_mode) == 0o600
