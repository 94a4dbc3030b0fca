"""Canonical JSON and the digests made from it: one text for one value, wherever it is hashed.

RFC 8785 (sorted keys, no white space, UTF-8, ECMAScript numbers) with one stated difference: integers keep every
digit up to 64 bits, since nanosecond times do not fit a double. Owns no schema and no file format.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]

DIGEST_PREFIX = "sha256:"
MIN_INTEGER = -(2**63)
MAX_INTEGER = 2**63 - 1
# Deeper values are a mistake or an attack, and would exhaust the stack of a later reader.
MAX_DEPTH = 64
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class CanonicalError(ValueError):
    """A value that has no canonical JSON; the message names its path."""


def canonical(value: Json) -> bytes:
    """Canonical JSON of a value, UTF-8.

    Raises CanonicalError for NaN, infinities, integers past 64 bits, lone surrogates, keys that are not strings,
    values deeper than MAX_DEPTH and types that JSON does not have.
    """
    out: list[str] = []
    _write(value, out, "$", 0)
    return "".join(out).encode("utf-8")


def sha256_hex(data: bytes) -> str:
    """SHA-256 of bytes, 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def digest(data: bytes) -> str:
    """SHA-256 of bytes as `sha256:<hex>`."""
    return DIGEST_PREFIX + sha256_hex(data)


def digest_of(value: Json) -> str:
    """`sha256:<hex>` over a value's canonical JSON. Raises CanonicalError."""
    return digest(canonical(value))


def _write(value: Json, out: list[str], path: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise CanonicalError(f"{path}: deeper than {MAX_DEPTH} levels")
    if value is None:
        out.append("null")
    elif value is True:
        out.append("true")
    elif value is False:
        out.append("false")
    elif isinstance(value, str):
        out.append(_string(value, path))
    elif isinstance(value, int):
        if not MIN_INTEGER <= value <= MAX_INTEGER:
            raise CanonicalError(f"{path}: the integer {value} does not fit 64 bits")
        out.append(int.__repr__(value))
    elif isinstance(value, float):
        out.append(_number(value, path))
    elif isinstance(value, Mapping):
        _write_object(value, out, path, depth)
    elif isinstance(value, (list, tuple)):
        out.append("[")
        for index, item in enumerate(value):
            if index:
                out.append(",")
            _write(item, out, f"{path}[{index}]", depth + 1)
        out.append("]")
    else:
        raise CanonicalError(f"{path}: {type(value).__name__} is no JSON type")


def _write_object(value: Mapping[str, Json], out: list[str], path: str, depth: int) -> None:
    for key in value:
        if not isinstance(key, str):
            raise CanonicalError(f"{path}: the key {key!r} is not a string")
    texts = {key: _string(key, path) for key in value}
    out.append("{")
    # RFC 8785 orders by UTF-16 code units, which differs from code points above the basic plane.
    for index, key in enumerate(sorted(value, key=lambda k: k.encode("utf-16-be"))):
        if index:
            out.append(",")
        out.append(texts[key])
        out.append(":")
        _write(value[key], out, f"{path}.{key}", depth + 1)
    out.append("}")


def _string(value: str, path: str) -> str:
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise CanonicalError(f"{path}: a lone surrogate has no UTF-8")
    text = "".join(_ESCAPES.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in value)
    return f'"{text}"'


def _number(value: float, path: str) -> str:
    """ECMAScript's Number::toString, from the shortest digits that Python's repr gives."""
    if not math.isfinite(value):
        raise CanonicalError(f"{path}: {value} is no JSON number")
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = f"{abs(value)!r}".partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (whole + fraction).lstrip("0")
    # The value is 0.digits times ten to the power of `point`.
    point = len(whole.lstrip("0")) + int(exponent or 0)
    if not whole.lstrip("0"):
        point -= len(fraction) - len(fraction.lstrip("0"))
    digits = digits.rstrip("0")
    return sign + _layout(digits, point)


def _layout(digits: str, point: int) -> str:
    count = len(digits)
    if count <= point <= 21:
        return digits + "0" * (point - count)
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    power = point - 1
    tail = f".{digits[1:]}" if count > 1 else ""
    return f"{digits[0]}{tail}e{'+' if power >= 0 else '-'}{abs(power)}"
