"""YAML text to a tree of nodes that know their lines; hostile text is an error, never a crash or a hang.

The tree is built from parser events, not by a YAML loader, because a loader drops lines, lets a
duplicate key win silently and expands aliases without a limit. Bounds: `MAX_BYTES` of text,
`MAX_DEPTH` levels, `MAX_NODES` nodes after aliases and merge keys are expanded (what an alias bomb
multiplies). Keys are kept as their text, so `1:` and `"1":` are the same key. Every problem is R40.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from network.problems import Place, Report, shown

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
MAX_NODES = 100_000

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVER: Any = yaml.resolver.Resolver()
_TAG = "tag:yaml.org,2002:"
_MERGE_TAG = _TAG + "merge"
_MAX_DIGITS = 64
_BOOLS = {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}


@dataclass(slots=True)
class Scalar:
    """One value: `value` is str, bool, int, float or None; `text` is what was written; `plain` = unquoted."""

    value: str | bool | int | float | None
    text: str
    plain: bool
    line: int
    size: int = 1


@dataclass(slots=True)
class Seq:
    """A list; `size` counts all nodes below with aliases expanded."""

    line: int
    items: list[Node] = field(default_factory=list)
    size: int = 1


@dataclass(slots=True)
class Map:
    """A mapping by key text; `lines[key]` is the key's own line."""

    line: int
    items: dict[str, Node] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    size: int = 1


Node = Scalar | Seq | Map


class _Stop(Exception):
    """The text cannot be read any further; the reason is the message."""

    def __init__(self, line: int | None, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.line = line
        self.fix = fix


def read_yaml(text: bytes | str, file: str, report: Report) -> Node | None:
    """The document's tree, or None when there is none (empty, or a problem that was reported)."""
    try:
        return _Builder(_decoded(text), file, report).document()
    except _Stop as stop:
        report.reject("R40", Place(file, "", stop.line), str(stop), stop.fix)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = " ".join(str(getattr(error, "problem", None) or error).split())
        line = None if mark is None else mark.line + 1
        report.reject("R40", Place(file, "", line), f"not valid YAML: {shown(reason, 200)}", "correct the YAML")
    return None


def _decoded(text: bytes | str) -> str:
    if len(text) > MAX_BYTES:
        raise _Stop(None, f"the file is longer than {MAX_BYTES} bytes", "split or shorten it")
    try:
        decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text.encode().decode("utf-8-sig")
    except UnicodeError as error:
        raise _Stop(None, f"not UTF-8 text: {error}", "save the file as UTF-8") from error
    return decoded


def resolve_plain(text: str) -> str | bool | int | float | None:
    """The value of an unquoted scalar, by YAML 1.1's implicit types; timestamps stay text."""
    tag = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))
    return _constructed(tag, text)


def _constructed(tag: str, text: str) -> str | bool | int | float | None:
    kind = tag.removeprefix(_TAG)
    try:
        if kind == "null":
            return None
        if kind == "bool":
            return _BOOLS[text.lower()]
        if kind == "int" and len(text) <= _MAX_DIGITS:
            return _integer(text.replace("_", ""))
        if kind == "float" and len(text) <= _MAX_DIGITS and ":" not in text:
            return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    except (ValueError, KeyError):
        return text
    return text


def _integer(text: str) -> int | str:
    if ":" in text:
        return text  # base 60 in YAML 1.1; whoever writes 22:22 means text
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    if digits.startswith("0") and digits.isdigit() and len(digits) > 1:
        return sign * int(digits, 8)
    return sign * int(digits, 0)


class _Builder:
    def __init__(self, text: str, file: str, report: Report) -> None:
        self._events: Iterator[Event] = iter(yaml.parse(text, Loader=_LOADER))
        self._file = file
        self._report = report
        self._anchors: dict[str, Node | None] = {}
        self._nodes = 0

    def document(self) -> Node | None:
        root: Node | None = None
        documents = 0
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise _Stop(_line(event), "more than one YAML document", "keep one document, remove `---`")
                root = self._node(next(self._events), 0)
        return root

    def _node(self, event: Event, depth: int) -> Node:
        if isinstance(event, AliasEvent):
            return self._alias(event)
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            self._anchors[anchor] = None  # an alias inside its own anchor finds None and is refused
        if isinstance(event, ScalarEvent):
            node: Node = self._scalar(event)
        elif depth >= MAX_DEPTH:
            raise _Stop(_line(event), f"nested deeper than {MAX_DEPTH} levels", "flatten the file")
        elif isinstance(event, SequenceStartEvent):
            node = self._sequence(event, depth)
        elif isinstance(event, MappingStartEvent):
            node = self._mapping(event, depth)
        else:
            raise _Stop(_line(event), "unexpected YAML structure", "correct the YAML")
        if anchor is not None:
            self._anchors[anchor] = node
        return node

    def _count(self, event: Event, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            raise _Stop(
                _line(event),
                f"more than {MAX_NODES} values once aliases are expanded",
                "write the values out instead of nesting aliases",
            )

    def _alias(self, event: AliasEvent) -> Node:
        name = str(event.anchor)
        target = self._anchors.get(name)
        if target is None:
            defined = "refers to itself" if name in self._anchors else "has no anchor"
            raise _Stop(_line(event), f"alias *{name} {defined}", "define the anchor before it")
        self._count(event, target.size)
        return target

    def _scalar(self, event: ScalarEvent) -> Scalar:
        self._count(event, 1)
        plain = bool(event.implicit[0]) and not event.style  # the C parser says "", the other None
        if event.tag in (None, "!"):
            value = resolve_plain(event.value) if plain else event.value
        elif event.tag in {_TAG + kind for kind in ("str", "int", "float", "bool", "null")}:
            value = _constructed(event.tag, event.value)
        else:
            raise _Stop(_line(event), f"unsupported tag {shown(event.tag)}", "remove the tag")
        return Scalar(value, event.value, plain, _line(event))

    def _sequence(self, event: SequenceStartEvent, depth: int) -> Seq:
        self._refuse_tag(event, "seq")
        self._count(event, 1)
        node = Seq(_line(event))
        while not isinstance(inner := next(self._events), SequenceEndEvent):
            child = self._node(inner, depth + 1)
            node.items.append(child)
            node.size += child.size
        return node

    def _mapping(self, event: MappingStartEvent, depth: int) -> Map:
        self._refuse_tag(event, "map")
        self._count(event, 1)
        node = Map(_line(event))
        merged: list[Map] = []
        merge_line: int | None = None
        while not isinstance(inner := next(self._events), MappingEndEvent):
            key = self._node(inner, depth + 1)
            child = self._node(next(self._events), depth + 1)
            node.size += child.size + 1
            if not isinstance(key, Scalar):
                raise _Stop(key.line, "a mapping key must be a plain value", "use text as the key")
            merge = key.plain and key.text == "<<"
            first = merge_line if merge else node.lines.get(key.text)
            if first is not None:
                self._report.reject(
                    "R40",
                    Place(self._file, key.text, _line(inner)),
                    f"duplicate key {shown(key.text)}, first on line {first}",
                    "merge a list, `<<: [*a, *b]`" if merge else "keep one of them",
                )
            elif merge:
                merge_line = _line(inner)
                merged.extend(self._merge_targets(child))
            else:
                node.items[key.text] = child
                node.lines[key.text] = _line(inner)
        for source in merged:  # earlier sources win over later ones, own keys over all
            for text, child in source.items.items():
                if text not in node.items:
                    node.items[text] = child
                    node.lines[text] = source.lines[text]
        return node

    def _merge_targets(self, node: Node) -> list[Map]:
        targets = node.items if isinstance(node, Seq) else [node]
        maps = [target for target in targets if isinstance(target, Map)]
        if len(maps) != len(targets):
            raise _Stop(node.line, "`<<` needs a mapping or a list of mappings", "merge an anchored mapping")
        return maps

    def _refuse_tag(self, event: SequenceStartEvent | MappingStartEvent, kind: str) -> None:
        if event.tag not in (None, "!", _TAG + kind):
            raise _Stop(_line(event), f"unsupported tag {shown(event.tag)}", "remove the tag")


def _line(event: Event) -> int:
    mark = event.start_mark
    return 1 if mark is None else int(mark.line) + 1
