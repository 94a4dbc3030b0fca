"""Text that somebody else wrote, on its way to an operator's terminal: shown, never obeyed.

Control characters (an agent's ESC sequences could move the cursor, set titles, or hide what it did) and characters
that reorder text become visible escapes; nothing is taken as markup.
"""

from __future__ import annotations

import unicodedata

from rich.text import Text

_KEPT = frozenset("\n\t")


def safe(text: str) -> str:
    """The text with everything that a terminal would obey made visible."""
    return "".join(c if c in _KEPT or not _obeyed(c) else _escaped(c) for c in text)


def one_line(text: str) -> str:
    """As `safe`, line breaks and tabs made visible too."""
    return safe(text).replace("\n", r"\n").replace("\t", r"\t")


def cell(value: object) -> Text:
    """A table's cell: a dash for nothing, else the value as plain text."""
    return Text("–" if value is None else one_line(str(value)), overflow="fold")


def _obeyed(character: str) -> bool:
    # Cc: C0 and C1 controls; Cf: bidirectional overrides, invisible joiners; Cs: lone surrogates; Zl, Zp: separators.
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
