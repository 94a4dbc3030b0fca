"""Sizes as people write them: `512m`, `1g`, `64k`, or plain bytes. Powers of 1024, as Docker reads them."""

from __future__ import annotations

import re

_UNITS = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_SIZE = re.compile(r"(\d{1,12})\s*([bkmg]?)b?", re.IGNORECASE)


def parse_size(value: object) -> int:
    """Bytes. Raises ValueError that says the accepted form."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
        size = int(match[1]) * _UNITS[match[2].lower()]
        if size > 0:
            return size
    raise ValueError("write a size such as 512m, 1g or 65536 (bytes)")


def show_size(size: int) -> str:
    """The shortest exact form, for example 536870912 → `512MB`, 4 GiB → `4GB`."""
    for unit, factor in (("GB", 1024**3), ("MB", 1024**2), ("KB", 1024)):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"
