"""Typed access to YAML nodes: what both readers and the settings readers use to walk a tree.

A `Walker` knows the file and the report; its methods return what could be read and reject the rest
under the code the caller gives. It owns no rule of any format.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from network.problems import Place, Report, shown
from network.yamlread import Map, Node, Scalar, Seq

_MAX_HINTED = 60
MAX_LISTED = 500
"""Entries of one list of grants, and services of one file; more is a mistake or an attack."""
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_$-]+")


def join_path(path: str, key: str) -> str:
    """`services` + `web` = `services.web`; keys with dots or other characters are quoted."""
    text = key if _PLAIN_KEY.fullmatch(key) else shown(key)
    return f"{path}.{text}" if path else text


def nearest(key: str, known: Iterable[str]) -> str:
    """` (did you mean X?)`, or nothing when no known key is close."""
    if len(key) > _MAX_HINTED:
        return ""
    found = difflib.get_close_matches(key, sorted(known), n=1, cutoff=0.6)
    return f" (did you mean {found[0]}?)" if found else ""


def kind_of(node: Node) -> str:
    """How an error message calls the node's type."""
    if isinstance(node, Map):
        return "a mapping"
    if isinstance(node, Seq):
        return "a list"
    if node.value is None:
        return "null"
    if isinstance(node.value, bool):
        return f"the boolean {str(node.value).lower()}"
    if isinstance(node.value, str):
        return f"the text {shown(node.value)}"
    return f"the number {node.text[:40]}"


def is_null(node: Node | None) -> bool:
    """True for an explicit null."""
    return isinstance(node, Scalar) and node.value is None


@dataclass(frozen=True, slots=True)
class Walker:
    """File and report of one reading; `service` marks the places below one service."""

    file: str
    report: Report
    service: str | None = None

    def place(self, path: str, line: int | None) -> Place:
        """A place in this file."""
        return Place(self.file, path, line, self.service)

    def of(self, service: str) -> Walker:
        """The same walker, for what lies below one service."""
        return Walker(self.file, self.report, service)

    def hint(self, key: str, known: Iterable[str]) -> str:
        """The nearest known key, as long as the report is not full of problems already."""
        return "" if self.report.crowded else nearest(key, known)

    def limited(self, items: list[Node], path: str, line: int) -> list[Node]:
        """The first `MAX_LISTED` entries; R41 when there are more."""
        if len(items) > MAX_LISTED:
            self.report.reject(
                "R41",
                self.place(path, line),
                f"{len(items)} entries, more than the {MAX_LISTED} that one list may have",
                "shorten the list",
            )
        return items[:MAX_LISTED]

    def mapping(self, node: Node, path: str, code: str, *, null: bool = False) -> Map | None:
        """The mapping; with `null` an explicit null counts as an empty one."""
        if isinstance(node, Map):
            return node
        if null and is_null(node):
            return Map(node.line)
        self.report.reject(
            code,
            self.place(path, node.line),
            f"needs a mapping, found {kind_of(node)}",
            "write it as `key: value` lines",
        )
        return None

    def strings(self, node: Node, path: str, code: str) -> list[tuple[str, Place]]:
        """The texts of a list; entries of another type are rejected one by one."""
        fix = 'write a list of texts, numbers in quotes ("443")'
        if not isinstance(node, Seq):
            self.report.reject(code, self.place(path, node.line), f"needs a list of texts, found {kind_of(node)}", fix)
            return []
        found: list[tuple[str, Place]] = []
        for index, item in enumerate(self.limited(node.items, path, node.line)):
            place = self.place(f"{path}[{index}]", item.line)
            if isinstance(item, Scalar) and isinstance(item.value, str):
                found.append((item.value, place))
            else:
                self.report.reject(code, place, f"needs a text, found {kind_of(item)}", fix)
        return found

    def text(self, node: Node, path: str, code: str, fix: str) -> str | None:
        """The text; anything else is rejected."""
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return node.value
        self.report.reject(code, self.place(path, node.line), f"needs a text, found {kind_of(node)}", fix)
        return None

    def boolean(self, node: Node, path: str, code: str) -> bool | None:
        """The boolean; texts such as "false" are rejected, since elsewhere they count as true."""
        if isinstance(node, Scalar) and isinstance(node.value, bool):
            return node.value
        self.report.reject(
            code,
            self.place(path, node.line),
            f"needs true or false, found {kind_of(node)}",
            "write true or false without quotes",
        )
        return None


def limit_services(walker: Walker, services: Map) -> list[tuple[str, Node]]:
    """The first `MAX_LISTED` services; R41 when there are more."""
    entries = list(services.items.items())
    if len(entries) > MAX_LISTED:
        walker.report.reject(
            "R41",
            walker.place("services", services.line),
            f"{len(entries)} services, more than the {MAX_LISTED} that one sandbox may have",
            "split the sandbox",
        )
    return entries[:MAX_LISTED]


def reject_keys(
    walker: Walker, entry: Map, path: str, unknown: list[str], known: tuple[str, ...] | frozenset[str]
) -> None:
    """One R11 for all unsupported keys of one mapping."""
    if not unknown:
        return
    listed = ", ".join(shown(key) + walker.hint(key, known) for key in unknown[:20])
    more = f" and {len(unknown) - 20} more" if len(unknown) > 20 else ""
    first = unknown[0]
    walker.report.reject(
        "R11",
        walker.place(join_path(path, first), entry.lines[first]),
        f"unsupported key{'s' if len(unknown) > 1 else ''}: {listed}{more}",
        "remove what cannot be honoured; supported: " + ", ".join(sorted(known)),
    )
