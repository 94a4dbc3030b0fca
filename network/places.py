"""Where the keys of a settings file stand, for problems whose cause is there and not in the network file.

Places never count when settings are compared: two files that say the same are equal, wherever they say it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from network.problems import Place
from network.yamlread import Map


@dataclass(frozen=True, slots=True)
class Places:
    """A file, and the 1-based line of each of its keys by dotted path (`versions.cilium`)."""

    file: str = field(default="", compare=False)
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)

    def of(self, path: str) -> Place | None:
        """The place of a key, or of the nearest one around it that is written; None when no file was read."""
        if not self.file:
            return None
        known = path
        while known and known not in self.lines:
            known = known.rpartition(".")[0]
        return Place(self.file, known, self.lines.get(known))


def places(root: Map, file: str) -> Places:
    """The places of a file's keys."""
    return Places(file, dict(_lines(root, "")))


def _lines(node: Map, prefix: str) -> Iterator[tuple[str, int]]:
    for key, child in node.items.items():
        yield f"{prefix}{key}", node.lines.get(key, node.line)
        if isinstance(child, Map):
            yield from _lines(child, f"{prefix}{key}.")
