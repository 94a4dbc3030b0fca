"""Which commands a spool has told: by their arguments' own field, whatever an agent writes into its command line."""

from __future__ import annotations

import json
from typing import Any

from daemon.agent.told import told_execs
from daemon.telemetry.tool_calls import MAX_ARGUMENTS_BYTES, PREVIEW_CHARACTERS
from formats import event


def line(number: int, arguments: dict[str, Any]) -> bytes:
    fields = {
        "timestamp_ns": 1,
        "tool_name": "exec",
        "arguments": arguments,
        "result_summary": "",
        "duration_ms": 1.0,
        "exit_code": 0,
        "signal": None,
        "timed_out": False,
        "truncated": False,
        "output_bytes": 0,
    }
    return event.encode("tool_invocation", "att_1", number, fields)


def long(exec_id: str, argv: list[str]) -> dict[str, Any]:
    """As an event has arguments that are too long for it."""
    text = json.dumps({"exec_id": exec_id, "argv": argv}, separators=(",", ":"))
    assert len(text) > MAX_ARGUMENTS_BYTES
    return {"truncated": True, "preview": text[:PREVIEW_CHARACTERS], "sha256": "x", "size_bytes": len(text)}


def test_ids_are_found_in_short_and_in_long_arguments(tmp_path):
    spool = tmp_path / "tool_invocation.jsonl"
    padding = "x" * MAX_ARGUMENTS_BYTES
    lines = [line(1, {"exec_id": "a", "argv": ["true"]}), b"exec_id: no event\n", line(2, long("b", [padding]))]
    spool.write_bytes(b"".join(lines))
    assert told_execs(spool, {"a", "b", "c"}) == {"a", "b"}
    assert told_execs(spool, set()) == set()
    assert told_execs(tmp_path / "none", {"a"}) == set()


def test_a_command_line_that_looks_like_another_command_is_not_it(tmp_path):
    spool = tmp_path / "tool_invocation.jsonl"
    fake = json.dumps({"exec_id": "victim"})
    padding = [fake, "x" * MAX_ARGUMENTS_BYTES]
    lines = [line(1, {"exec_id": "a", "argv": [fake, "exec_id", "victim"]}), line(2, long("victim2", padding))]
    spool.write_bytes(b"".join(lines))
    assert told_execs(spool, {"victim"}) == set()
