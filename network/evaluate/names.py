"""DNS name patterns as Cilium reads them.

`*` stands for any number of [-a-z0-9_] inside one label; a pattern of nothing but stars matches every
name; a leading `**.` stands for one or more whole labels (Cilium 1.19 and later). Names and patterns
are lower-cased and compared with their trailing dot.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["NamePattern", "covered"]

_CHARS = "[-a-z0-9_]"


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    body = pattern.strip().lower()
    if re.fullmatch(r"\*+\.?", body):
        return re.compile(rf"(?:{_CHARS}+\.)+|\.")
    if not body.endswith("."):
        body += "."
    prefix = ""
    head = re.match(r"\*{2,}\.", body)
    if head:
        prefix, body = rf"(?:{_CHARS}+\.)+", body[head.end() :]
    pieces = re.split(r"\*+", body)
    return re.compile(prefix + f"{_CHARS}*".join(re.escape(piece) for piece in pieces))


@dataclass(frozen=True, order=True)
class NamePattern:
    """One matchName (`exact`) or matchPattern, in lower case without the trailing dot."""

    text: str
    exact: bool

    @classmethod
    def of(cls, text: str, *, exact: bool) -> NamePattern:
        """The canonical form of a name or pattern as written."""
        lowered = text.strip().lower()
        return cls(lowered[:-1] if lowered.endswith(".") and len(lowered) > 1 else lowered, exact)

    @property
    def everything(self) -> bool:
        """Whether it matches every name."""
        return not self.exact and set(self.text) == {"*"}

    def matches(self, name: str) -> bool:
        """Whether a DNS name, with or without trailing dot, is one this pattern means."""
        lowered = name.lower()
        dotted = lowered if lowered.endswith(".") else lowered + "."
        if self.exact:
            return dotted == self.text + "."
        return _compiled(self.text).fullmatch(dotted) is not None

    def covers(self, other: NamePattern) -> bool:
        """Whether every name of `other` is certainly one of this; False where it cannot be told."""
        if self == other or self.everything:
            return True
        return other.exact and self.matches(other.text)


def covered(name: NamePattern, patterns: Collection[NamePattern]) -> bool:
    """Whether one of the patterns certainly means every name of `name`."""
    return name in patterns or any(pattern.covers(name) for pattern in patterns)
