"""What the probe printed, and whether it is what the plan promises; a mismatch blocks the start.

What is missing, doubled, unknown, failed or of another plan counts as a mismatch too: no proof, no start.
Results have an `outcome`: `open` and `refused` mean that packets arrived, `blocked` that they did not,
`unsupported` that the sandbox could not even try, `error` that the check itself failed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from network.probe import Check
from network.probeplan import ProbePlan

VERSION = "netprobe/2"
ARRIVED = frozenset({"open", "refused"})


class ProbeError(ValueError):
    """The probe's output cannot be read; the start is blocked."""


@dataclass(frozen=True, slots=True)
class Results:
    """The digest of the plan that the probe ran ("" = none), and (id, outcome, detail) of everything it tried."""

    digest: str
    items: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One check whose outcome is not the promised one; `plan` is the id of the plan as a whole."""

    id: str
    expected: str
    observed: str
    reason: str

    def to_json(self) -> dict[str, Any]:
        """The fields under their names."""
        return {"id": self.id, "expected": self.expected, "observed": self.observed, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class ProbeVerdict:
    """Whether the sandbox may start, and every reason against it."""

    mismatches: tuple[Mismatch, ...]

    @property
    def ok(self) -> bool:
        """True when every check came out as promised."""
        return not self.mismatches

    def to_json(self) -> dict[str, Any]:
        """`{"ok", "mismatches": [{"id", "expected", "observed", "reason"}]}`."""
        return {"ok": self.ok, "mismatches": [item.to_json() for item in self.mismatches]}


def read_results(text: str | bytes) -> Results:
    """Everything that the probe printed; ProbeError when it is not its output."""
    try:
        document = json.loads(text)
        if document["probe"] != VERSION:
            raise ProbeError(f"the probe is {document['probe']!r}, expected {VERSION!r}: rebuild its image")
        items = [(str(item["id"]), str(item["outcome"]), str(item.get("detail", ""))) for item in document["results"]]
        return Results(str(document.get("digest", "")), tuple(items))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, ProbeError):
            raise
        raise ProbeError(f"not the output of the probe: {error!r}") from error


def judge(plan: ProbePlan, results: Results) -> ProbeVerdict:
    """Compare results with what the plan promises."""
    mismatches: list[Mismatch] = []
    if results.digest != plan.digest:
        observed = f"results of plan {results.digest[:64]!a}" if results.digest else "results that name no plan"
        reason = "other targets, service, sandbox, backend, policy or time limit: run the probe again"
        mismatches.append(Mismatch("plan", f"results of plan {plan.digest!a}", observed, reason))
    found: dict[str, list[tuple[str, str]]] = {}
    for name, outcome, detail in results.items:
        found.setdefault(name, []).append((outcome, detail))
    for check in plan.checks:
        answers = found.pop(check.id, [])
        if len(answers) != 1:
            observed = "no result" if not answers else f"{len(answers)} results"
            mismatches.append(Mismatch(check.id, check.expect, observed, check.reason))
            continue
        [(outcome, detail)] = answers
        if outcome not in (ARRIVED if check.expect == "reachable" else _stopped(check)):
            mismatches.append(Mismatch(check.id, check.expect, f"{outcome}: {detail}", check.reason))
    mismatches += [Mismatch(name, "no such check", "a result", "not in the plan") for name in sorted(found)]
    return ProbeVerdict(tuple(mismatches))


def _stopped(check: Check) -> frozenset[str]:
    """What proves that nothing arrives. A sandbox may lack ping sockets or IPv6, but one that could not even try
    anything else says nothing about its network.
    """
    lacking = check.kind == "icmp" or ":" in check.address
    return frozenset({"blocked", "unsupported"}) if lacking else frozenset({"blocked"})
