"""The escape corpus in a real sandbox: every probe is denied as the table says, and PID 1 lives on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli import sandbox
from tests.support import escape
from tests.support.attempts import ended, running
from tests.support.challenge_files import make_challenge
from tests.support.environment import gauntlet

pytestmark = [pytest.mark.docker, pytest.mark.slow]


def events_of(environment, attempt_id: str) -> list[dict[str, Any]]:
    lines = gauntlet(environment, "events", attempt_id, "--json").stdout.splitlines()
    return [json.loads(line) for line in lines]


async def test_every_probe_is_denied_as_expected_and_every_reportable_one_is_reported(environment, tmp_path):
    async with running(environment, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        await escape.put(agent)
        probes = await escape.run_corpus(agent)
        await sandbox.submit(agent)
        record = await ended(to, attempt_id)
    reported = escape.reported_pids(events_of(environment, attempt_id))
    escape.write_table(probes, reported, escape.BUILD / "escape.md")
    escape.write_sarif(probes, reported, escape.BUILD / "escape.sarif")
    assert len(probes) >= 60
    assert {probe.abi for probe in probes} == {"64", "int80", "x32"}
    wrong = [str(probe) for probe in probes if not probe.as_expected]
    assert not wrong, "\n".join(wrong)
    # Whatever was tried: an attempt like any other, ended by its agent.
    assert (record["outcome"], record["fault"]) == ("SUBMITTED", "NONE")
    must = [probe for probe in probes if probe.must_report]
    assert len(must) >= 9
    assert [probe.name for probe in must if probe.pid not in reported] == []
    told = [name for names in reported.values() for name in names]
    # Nothing else is reported, and each once: the record's count is that of the events.
    assert {probe.pid for probe in must} == set(reported)
    assert record["sandbox"]["blocked_syscalls"] == len(told) == len(must)
    assert "ESCAPE_ATTEMPT" in record["flags"]
