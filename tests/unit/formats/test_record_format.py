"""The audit record's shape and bytes."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from formats.record import EXIT_REASONS, JudgeRecord, Outcome, Record, SandboxRecord, State, parse_record, timestamp

SPEC_SANDBOX = {
    "image_digest",
    "node_id",
    "container_id",
    "started_at",
    "ended_at",
    "exit_code",
    "exit_reason",
    "peak_memory_bytes",
    "peak_cpu_percent",
    "disk_written_bytes",
    "pids_peak",
    "oom_kills",
    "blocked_syscalls",
    "telemetry_events",
}


def record(**changes: object) -> Record:
    values: dict[str, object] = {
        "attempt_id": "att_1",
        "challenge_id": "c",
        "challenge_digest": "sha256:0",
        "agent_id": "a",
        "priority": "practice",
        "state": State.QUEUED,
        "created_at": "2026-03-27T14:00:00.000Z",
        **changes,
    }
    return Record.model_validate(values)


def test_every_field_of_the_specification_is_there_from_the_start() -> None:
    document = json.loads(record().canonical())
    assert {"attempt_id", "challenge_id", "agent_id", "sandbox", "judges", "scores"} <= set(document)
    assert set(document["sandbox"]) >= SPEC_SANDBOX
    assert (document["outcome"], document["judges"], document["scores"]) == (None, {}, {})
    assert {"fault", "flags", "priority", "supersedes", "workspace", "agent_feedback", "state"} <= set(document)
    assert set(document["workspace"]) >= {"baseline_digest", "diff_digest", "added", "modified", "deleted"}


def test_canonical_bytes_are_sorted_and_numbers_are_numbers() -> None:
    scored = record(
        scores={"objective": 82.0, "integrity": "pass", "composite": 81.5},
        judges={"objective": {"duration_ms": 5, "container_id": "x"}, "process": {"duration_ms": 2}},
        sandbox={"peak_cpu_percent": 87.5, "peak_memory_bytes": 2147483648},
    )
    text = scored.canonical()
    assert b'"scores":{"composite":81.5,"integrity":"pass","objective":82}' in text
    assert b'"judges":{"objective":{"container_id":"x","duration_ms":5},"process":{"duration_ms":2}}' in text
    assert b'"peak_cpu_percent":87.5,"peak_memory_bytes":2147483648' in text
    assert list(json.loads(text)) == sorted(json.loads(text))


def test_a_record_reads_back_as_it_was() -> None:
    first = record(outcome="TIMED_OUT", fault="AGENT", flags=("DISK_FULL",), supersedes="att_0")
    assert parse_record(first.canonical()) == first


def test_the_network_is_there_only_when_the_challenge_says_something_about_it() -> None:
    assert "network" not in record().document()
    explained = {"digest": "sha256:1", "services": {"a": {"internet": "none"}}, "warnings": [{"code": "W11"}]}
    first = record(network=explained)
    assert json.loads(first.canonical())["network"] == explained
    assert parse_record(first.canonical()) == first


@pytest.mark.parametrize(
    "bad",
    [{"outcome": "WON"}, {"scores": {"objective": 101}}, {"scores": {"integrity": "maybe"}}, {"colour": "blue"}],
    ids=str,
)
def test_what_is_no_record_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        record(**bad)


def test_exit_reasons_are_the_six() -> None:
    assert set(EXIT_REASONS) == set(Outcome)
    assert set(EXIT_REASONS.values()) == {
        "agent_submitted",
        "crashed",
        "oom_killed",
        "timed_out",
        "cancelled",
        "voided",
    }


def test_timestamps_are_utc_with_milliseconds() -> None:
    assert timestamp(1_774_620_000_123_456_789) == "2026-03-27T14:00:00.123Z"
    assert timestamp(None) is None and timestamp(0) is None


def test_parts_have_defaults_of_nothing_observed() -> None:
    assert set(SandboxRecord().model_dump().values()) == {None}
    assert JudgeRecord(duration_ms=1).documents == {}
