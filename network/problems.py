"""Every problem of an input, collected in one report; nothing here decides what a problem is.

A rejection has a stable code (`R1` ... `R44`, names in `REJECTIONS`), a warning too (`W1` ...).
Each entry says where (file, YAML path, 1-based line, service as written), why, and the fix.
Readers go on after a rejection so that one run shows all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

REJECTIONS: dict[str, str] = {
    "R1": "NET_MODE_UNSUPPORTED",
    "R2": "NET_NONE_WITH_NETWORKS",
    "R3": "NET_INTERNAL_ONLINE",
    "R4": "NET_BRIDGE_SPLIT",
    "R5": "NET_DRIVER",
    "R6": "NET_KEY",
    "R7": "NET_UNDECLARED",
    "R8": "NET_BAD_VALUE",
    "R9": "NET_ENDPOINT_OPTS",
    "R10": "PORTS_PUBLISH",
    "R11": "COMPOSE_KEY",
    "R12": "EXT_BOTH",
    "R13": "EXT_TYPE",
    "R14": "DOMAIN_SYNTAX",
    "R15": "DOMAIN_CLUSTER",
    "R16": "CIDR_SYNTAX",
    "R17": "CIDR_PROTECTED",
    "R18": "ENTITY_UNKNOWN",
    "R19": "ENTITY_INFRA",
    "R20": "PORT_BYPASS",
    "R21": "PORT_DOMAIN",
    "R22": "PORT_RANGE",
    "R23": "LABEL_RESERVED",
    "R24": "EXTRA_RESOURCES",
    "R25": "DNS_RECORD",
    "R26": "POLICY_OFF",
    "R27": "BACKEND_GAP",
    "R28": "NULLS",
    "R29": "NAME_COLLISION",
    "R30": "STRICT_NO_SANDBOX",
    "R31": "STRICT_DEFAULT_USER",
    "R32": "STRICT_EXTRA_RESOURCES",
    "R33": "STRICT_INIT_CONTAINERS",
    "R34": "STRICT_VOLUME",
    "R35": "STRICT_BROAD_GRANT",
    "R36": "STRICT_TASK_EGRESS",
    "R37": "STRICT_NO_RUNTIME",
    "R38": "STRICT_GPU",
    "R39": "STRICT_HUMAN_EVAL",
    "R40": "YAML",
    "R41": "VALUE",
    "R42": "VALUES_KEY",
    "R43": "ISOLATION",
    "R44": "API_KEY",
}
"""Code to stable name. R13 is also reported for an unknown key of the extension (the name stays)."""

WARNINGS: dict[str, str] = {
    "W1": "INTERNET_ALL",
    "W2": "NONE_CANCELS_SHARED_NETWORK",
    "W3": "SHARED_NETWORK_GRANTS",
    "W4": "BRIDGE_WITH_NETWORKS",
    "W5": "UNREACHABLE",
    "W6": "INTERNAL_WITH_DOMAINS",
    "W7": "DOMAIN_BROAD",
    "W8": "DOMAIN_WRITABLE",
    "W9": "CIDR_BROAD",
    "W10": "CIDR_EXCEPT",
    "W11": "RUNTIME_DEFAULT",
    "W12": "IGNORED_KEY",
    "W13": "RENAMED",
    "W14": "VARIABLE_UNSET",
    "W15": "IMPLICIT_DEFAULT",
    "W16": "ONLINE_BY_SIBLING",
    "W17": "NON_INTERNAL_GRANTS_NOTHING",
    "W18": "EGRESS_REPLACED",
    "W19": "PORT_UNCHECKED",
    "W20": "BACKEND_DIFFERS",
    "W21": "VALUE_DOUBTFUL",
    "W22": "HUMAN_EVAL_PORT",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One rejection or warning. `line` is 1-based, `service` is the name as written in the file."""

    code: str
    message: str
    service: str | None
    path: str
    line: int | None
    fix: str
    file: str

    @property
    def name(self) -> str:
        """The stable name of the code."""
        return REJECTIONS.get(self.code) or WARNINGS[self.code]

    def to_json(self) -> dict[str, Any]:
        """`{"code", "name", "message", "service", "path", "line", "fix", "file"}`."""
        return {
            "code": self.code,
            "name": self.name,
            "message": self.message,
            "service": self.service,
            "path": self.path,
            "line": self.line,
            "fix": self.fix,
            "file": self.file,
        }

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        where = f" ({self.path})" if self.path else ""
        lines = [f"{place}: {self.code} {self.name}{where}: {self.message}"]
        if self.fix:
            lines.append(f"    fix: {self.fix}")
        return "\n".join(map(printable, lines))


@dataclass(frozen=True, slots=True)
class Place:
    """A position in an input: file, YAML path and 1-based line, and the service it belongs to."""

    file: str
    path: str = ""
    line: int | None = None
    service: str | None = None


def _order(problem: Problem) -> tuple[str, int, int, str]:
    return (problem.file, problem.line or 0, int(problem.code[1:]), problem.path)


MAX_ENTRIES = 1000
"""Rejections and warnings kept in one report; a file with more has the rest counted only."""


@dataclass(slots=True)
class Report:
    """A collector: `reject` and `warn` add entries, equal ones once, the first `MAX_ENTRIES` of each."""

    _problems: dict[Problem, None] = field(default_factory=dict)
    _warnings: dict[Problem, None] = field(default_factory=dict)

    def reject(self, code: str, place: Place, message: str, fix: str) -> None:
        """Add one rejection; `code` is a key of `REJECTIONS`."""
        if code not in REJECTIONS:
            raise KeyError(code)
        self._add(self._problems, _problem(code, place, message, fix))

    def warn(self, code: str, place: Place, message: str, fix: str = "") -> None:
        """Add one warning; `code` is a key of `WARNINGS`."""
        if code not in WARNINGS:
            raise KeyError(code)
        self._add(self._warnings, _problem(code, place, message, fix))

    @staticmethod
    def _add(entries: dict[Problem, None], problem: Problem) -> None:
        if len(entries) < MAX_ENTRIES:
            entries[problem] = None

    @property
    def crowded(self) -> bool:
        """True once so much is wrong that hints are no longer worth their time."""
        return len(self._problems) > MAX_ENTRIES // 5

    @property
    def ok(self) -> bool:
        """True while nothing was rejected."""
        return not self._problems

    @property
    def problems(self) -> list[Problem]:
        """Rejections in order of file, line and code."""
        return sorted(self._problems, key=_order)

    @property
    def warnings(self) -> list[Problem]:
        """Warnings in the same order."""
        return sorted(self._warnings, key=_order)


def _problem(code: str, place: Place, message: str, fix: str) -> Problem:
    return Problem(code, message, place.service, place.path, place.line, fix, place.file)


def printable(text: str) -> str:
    """The text on one line without control characters: names in a file may carry terminal commands."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def shown(value: object, limit: int = 80) -> str:
    """A value as an error message shows it: quoted, printable ASCII only, cut after `limit` characters."""
    text = ascii(value)
    return text if len(text) <= limit else text[: limit - 3] + "..."
