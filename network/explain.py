"""The explanation of a policy for people: a table, its provenance, and the difference to an approved one.

Plain text, no colours, so that it can be pasted into a review. What an approved explanation is
compared on are permissions and where they come from, never line numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from network.model import Matrix, ServiceVerdict

_HEAD = ("service", "internet", "DNS names", "reachable from", "ports", "from outside", "runtime")
_POLICY = (
    "internet",
    "domains",
    "cidrs",
    "dns",
    "reachable_from",
    "ports",
    "outside_ingress",
    "runtime_class",
)
_MAX_WIDTH = 44


def table(matrix: Matrix) -> str:
    """The matrix as an aligned text table; long cells go on over several lines."""
    rows = [_row(name, verdict) for name, verdict in matrix.items()]
    wrapped = [[_wrap(cell) for cell in row] for row in [_HEAD, *rows]]
    widths = [max(len(line) for row in wrapped for line in row[column]) for column in range(len(_HEAD))]
    lines: list[str] = []
    for index, row in enumerate(wrapped):
        for level in range(max(map(len, row))):
            cells = [cell[level] if level < len(cell) else "" for cell in row]
            lines.append("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
        if index == 0:
            lines.append("  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _row(name: str, verdict: ServiceVerdict) -> tuple[str, ...]:
    outside = [*verdict.domains, *verdict.cidrs]
    internet = {"none": "no", "all": "EVERYTHING"}.get(verdict.internet, ", ".join(outside))
    dns = {"none": "none", "siblings": "siblings only", "listed": "siblings, listed", "all": "EVERY NAME"}
    if verdict.ports is None:
        ports = "all" if verdict.reachable_from else "-"
    else:
        ports = ", ".join(f"{port.port}/{port.protocol}" for port in verdict.ports)
    return (
        name,
        internet,
        dns[verdict.dns],
        ", ".join(verdict.reachable_from) or "nobody",
        ports,
        ", ".join(f"{port}/TCP" for port in verdict.outside_ingress) or "nothing",
        verdict.runtime_class or "node default",
    )


def _wrap(cell: str) -> list[str]:
    lines = [""]
    for word in cell.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > _MAX_WIDTH:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return lines


def provenance(matrix: Matrix) -> str:
    """Who granted what: one line a grant, sandbox-wide grants once."""
    lines: dict[str, list[str]] = {}
    for name, verdict in matrix.items():
        for grant in verdict.granted_by:
            place = grant.file if grant.line is None else f"{grant.file}:{grant.line}"
            path = f" ({grant.path})" if grant.path else ""
            lines.setdefault(f"{grant.grant}: {grant.value}  <- {place}{path}", []).append(name)
    return "\n".join(f"  {_short(names, len(matrix))}: {line}" for line, names in lines.items())


def _short(names: Sequence[str], total: int) -> str:
    if len(names) == total and total > 1:
        return "every service"
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


class ApprovalError(ValueError):
    """The approved explanation cannot be read; the message says what it must be."""


def difference(approved: Any, current: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the current explanation permits other than the approved one, both as `explain --json` printed.

    One entry a change: `{"service", "field", "approved", "current"}`; empty = the same policy.
    """
    if not isinstance(approved, Mapping) or not isinstance(approved.get("services"), Mapping):
        raise ApprovalError("the approved explanation must be what `explain --json` printed")
    old, new = approved["services"], current["services"]
    changes: list[dict[str, Any]] = []
    for name in [*old, *(name for name in new if name not in old)]:
        before, after = old.get(name), new.get(name)
        if not isinstance(before, Mapping) or after is None:
            changes.append(_change(name, "service", before is not None, after is not None))
            continue
        changes += [
            _change(name, field, before.get(field), after.get(field))
            for field in _POLICY
            if before.get(field) != after.get(field)
        ]
        origins, now = _origins(before.get("granted_by")), _origins(after.get("granted_by"))
        if origins != now:
            changes.append(_change(name, "granted_by", origins, now))
    return changes


def unequal(explained: Any, evaluated: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Where what was rendered, as `evaluate` found it, permits other than what `explain --json` printed.

    The same entries as `difference`; `approved` is what was explained. ApprovalError when it was rejected or is no
    explanation.
    """
    if isinstance(explained, Mapping) and explained.get("ok") is False:
        raise ApprovalError("the explanation is of a rejected file")
    bare = {"services": {name: {**verdict, "granted_by": []} for name, verdict in evaluated["services"].items()}}
    changes = [change for change in difference(explained, bare) if change["field"] != "granted_by"]
    old, new = explained.get("domain_ports") or {}, evaluated.get("domain_ports") or {}
    return changes + [
        _change(name, "domain_ports", old.get(name, []), new.get(name, []))
        for name in dict.fromkeys([*old, *new])
        if old.get(name, []) != new.get(name, [])
    ]


def _change(service: str, field: str, approved: Any, current: Any) -> dict[str, Any]:
    return {"service": service, "field": field, "approved": approved, "current": current}


def _origins(grants: Any) -> list[str]:
    entries = grants if isinstance(grants, list) else []
    return sorted(
        f"{entry.get('grant')}: {entry.get('value')} ({entry.get('path')})"
        for entry in entries
        if isinstance(entry, Mapping)
    )


def difference_text(changes: Iterable[Mapping[str, Any]]) -> str:
    """The changes as lines `service field: approved -> current`."""
    return "\n".join(
        f"  {change['service']} {change['field']}: {change['approved']} -> {change['current']}" for change in changes
    )
