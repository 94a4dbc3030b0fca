"""Small settings files of our own (cluster, probe targets): YAML with one mapping at the top, checked by a model.

Owns what such files have in common. Network files have a reader of their own: they are other people's format.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from network.problems import Report
from network.yamlread import Map, Node, Seq, read_yaml


def read_settings(text: bytes | str, file: str, example: str, error: type[ValueError]) -> Map:
    """The mapping of a file. Raises `error` with the first problem; `example` is shown where there is no mapping."""
    report = Report()
    root = read_yaml(text, file, report)
    if not report.ok:
        raise error(str(report.problems[0]))
    if not isinstance(root, Map):
        raise error(f"{file}: needs a mapping such as `{example}`")
    return root


def in_words(error: ValidationError) -> str:
    """What a model found wrong, by key."""
    return "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())


def plain(node: Node) -> Any:
    """The node as mappings, lists and values of Python."""
    if isinstance(node, Map):
        return {key: plain(child) for key, child in node.items.items()}
    if isinstance(node, Seq):
        return [plain(child) for child in node.items]
    return node.value
