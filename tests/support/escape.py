"""The escape corpus: built, run inside an attempt through the public API, compared, and written down.

The table of probes is the Go program's own (`tests/escape/`); this module knows only what a line of it means. What it
writes goes to `build/`: a table for people and SARIF 2.1.0 for tools.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli import sandbox
from cli.clients import Agent
from tests.support.environment import REPOSITORY
from tests.support.gobuild import ESCAPE, built

INSIDE = "submissions/code/escape"
BUILD = REPOSITORY / "build"
CORPUS_SECONDS = 240.0
COLUMNS = ("name", "abi", "expected", "got", "must be reported", "reported", "how")


@dataclass(frozen=True)
class Probe:
    """One probe and what it met. `got` is an errno's name, a signal's, or SUCCEEDED."""

    name: str
    category: str
    how: str
    abi: str
    expect: tuple[str, ...]
    must_report: bool
    why: str
    got: str
    detail: str
    pid: int

    @property
    def as_expected(self) -> bool:
        """Whether it ended as the table says."""
        return self.got in self.expect

    def __str__(self) -> str:
        return f"{self.name}: expected {' or '.join(self.expect)}, got {self.got} {self.detail}".rstrip()


def probe_of(line: str) -> Probe:
    """One line of the program. Raises ValueError, KeyError."""
    value = json.loads(line)
    return Probe(
        name=value["name"],
        category=value["category"],
        how=value["how"],
        abi=value["abi"],
        expect=tuple(value["expect"]),
        must_report=value["report"],
        why=value.get("why", ""),
        got=value["got"],
        detail=value.get("detail", ""),
        pid=value["pid"],
    )


async def put(agent: Agent) -> None:
    """The program into the attempt's workspace, executable."""
    await sandbox.write_file(agent, INSIDE, built(ESCAPE).read_bytes(), mode=0o755)


async def run(agent: Agent, *arguments: str, seconds: float = CORPUS_SECONDS, stdin: bytes = b"") -> str:
    """Run the program; its standard output. Asserts that it ended by itself with 0."""
    out, words = bytearray(), bytearray()
    end = await sandbox.run_command(
        agent,
        [f"/workspace/{INSIDE}", *arguments],
        stdin=stdin,
        timeout_seconds=seconds,
        stdout=out.extend,
        stderr=words.extend,
    )
    assert end.exit_code == 0, f"{end}: {words.decode(errors='replace')[-2000:]}"
    return out.decode(errors="replace")


async def run_corpus(agent: Agent) -> list[Probe]:
    """Every probe, tried."""
    return [probe_of(line) for line in (await run(agent)).splitlines()]


def reported_pids(events: Iterable[dict[str, Any]]) -> dict[int, list[str]]:
    """System calls that `escape_attempt` events name, by the process that made them."""
    found: dict[int, list[str]] = {}
    for event in events:
        if event["kind"] == "escape_attempt" and "gap" not in event:
            found.setdefault(event["pid"], []).append(event["syscall"])
    return found


def write_table(probes: Sequence[Probe], reported: dict[int, list[str]], path: Path) -> Path:
    """The corpus as a Markdown table."""
    rows = [
        (
            probe.name,
            probe.abi,
            " or ".join(probe.expect),
            probe.got + ("" if probe.as_expected else " (!)"),
            "yes" if probe.must_report else "",
            " ".join(reported.get(probe.pid, ())),
            probe.how + (f"; {probe.why}" if probe.why else ""),
        )
        for probe in probes
    ]
    lines = ["| " + " | ".join(row) + " |" for row in (COLUMNS, ("---",) * len(COLUMNS), *rows)]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def write_sarif(probes: Sequence[Probe], reported: dict[int, list[str]], path: Path) -> Path:
    """The corpus as SARIF: a rule a probe; `pass` what was denied as expected, `fail` and `error` a finding."""
    rules = [
        {"id": p.name, "shortDescription": {"text": p.how}, "properties": {"category": p.category, "abi": p.abi}}
        for p in probes
    ]
    results = []
    for probe in probes:
        unreported = probe.must_report and probe.pid not in reported
        good = probe.as_expected and not unreported
        text = str(probe) + ("; it was not reported" if unreported else "")
        results.append(
            {
                "ruleId": probe.name,
                "kind": "pass" if good else "fail",
                "level": "none" if good else "error",
                "message": {"text": text},
                "locations": [{"physicalLocation": {"artifactLocation": {"uri": ESCAPE.directory}}}],
                "properties": {"reported": reported.get(probe.pid, []), "mustBeReported": probe.must_report},
            }
        )
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": {"name": "gauntlet-escape", "rules": rules}}, "results": results}],
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return path
