"""Files whose parts multiply are read within bounds: a child process under a limit of CPU time reads each."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from network.domains import overlaps
from tests.support.network_files import codes, values

CPU_SECONDS = 10
_CHILD = (
    "import json, sys; from network.check import Source, check;"
    "found = check(Source(sys.stdin.buffer.read(), 'f.yaml'), kind='values');"
    "print(json.dumps([problem.code for problem in found.report.problems]))"
)


def _listed(entries: list[str]) -> str:
    return "[" + ", ".join(f'"{entry}"' for entry in entries) + "]"


def _services(count: int, records: int, name: str) -> str:
    lines = ["services:"]
    for number in range(count):
        names = [name.format(number * records + index) for index in range(records)]
        lines.append(f"  s{number}: {{image: x, additionalDnsRecords: {_listed(names)}}}")
    return "\n".join(lines)


STARS = "*" + "a*" * 25 + "b"
FILES = {
    "patterns that match late": f"allowDomains: {_listed([f'{STARS}{n}.x.example' for n in range(100)])}\n"
    + _services(1, 100, "a" * 55 + "{}.x.example"),
    "many patterns": f"allowDomains: {_listed([f'*{n}.{STARS}.x.example' for n in range(500)])}\n"
    + _services(10, 100, "{}." + "a" * 55 + ".x.example"),
    "many plain names": f"allowDomains: {_listed([f'a{n}.example' for n in range(500)])}\n"
    + _services(150, 300, "r{}.example"),
    "many labels": f"allowDomains: {_listed(['**.' + '*a.' * 60 + f'b{n}.example' for n in range(500)])}\n"
    + _services(1, 500, "a." * 60 + "{}.example"),
}


@pytest.mark.parametrize("name", FILES)
def test_records_beside_patterns_are_compared_within_bounds(name: str) -> None:
    limit = (CPU_SECONDS, CPU_SECONDS)
    done = subprocess.run(
        [sys.executable, "-c", _CHILD], input=FILES[name].encode(), capture_output=True, timeout=300, check=False,
        cwd=Path(__file__).parents[3], preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, limit),
    )  # fmt: skip
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-500:]!r}"
    found = set(json.loads(done.stdout))
    expected = {"patterns that match late": set(), "many patterns": {"R25"}, "many plain names": {"R41"}}
    assert found == expected.get(name, {"R25"})


def test_too_many_comparisons_are_refused_with_their_numbers() -> None:
    patterns = _listed([f"*x{n}.example" for n in range(200)])
    outcome = values(f"allowDomains: {patterns}\n" + _services(3, 100, "r{}.example"))
    [problem] = outcome.report.problems
    assert problem.code == "R25" and "300" in problem.message and "200" in problem.message and problem.fix


def test_a_shadowing_record_is_still_found_in_every_service() -> None:
    text = "allowDomains: [a.example, '*.b.example', '**.c.example']\nservices:\n"
    text += "  default: {additionalDnsRecords: [A.example, ok.example]}\n  web: {additionalDnsRecords: [x.B.example]}\n"
    text += "  db: {additionalDnsRecords: [x.y.c.example, c.example, x.y.b.example]}\n"
    found = [(problem.service, problem.path) for problem in values(text).report.problems]
    assert codes(values(text)) == ["R25"]
    assert found == [
        ("default", "services.default.additionalDnsRecords[0]"),
        ("web", "services.web.additionalDnsRecords[0]"),
        ("db", "services.db.additionalDnsRecords[0]"),
    ]


def test_a_pattern_of_many_stars_is_matched_like_any_other() -> None:
    assert overlaps(f"{STARS}.example", "a" * 30 + "b.example")
    assert not overlaps(f"{STARS}.example", "a" * 24 + "b.example")
    assert not overlaps(f"{STARS}.example", "a" * 60 + ".example")
