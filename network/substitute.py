"""Variables in a Compose file: `${VAR}`, `${VAR:-default}` and their kin, in scalar values after parsing.

Substituting after parsing, and in values only, keeps a variable's content from becoming structure:
a value with a line break or `: ` in it stays one value. An unquoted scalar gets its type again from
the result (`internal: ${X}` with X=true is a boolean). Keys are never substituted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from network.problems import Place, Report, shown
from network.yamlread import Map, Node, Scalar, Seq, resolve_plain

MAX_OUTPUT = 4 << 20
MAX_NESTING = 8
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MODE = re.compile(r"services\..+\.network_mode", re.DOTALL)
_OPERATORS = (":-", ":?", ":+", "-", "?", "+")


class _Bad(ValueError):
    """A substitution that cannot be done; the message says why."""


def substitute(root: Node, env: Mapping[str, str], file: str, report: Report) -> Node:
    """The tree with every `$` expression in its values replaced from `env`; problems are R41."""
    return _Substitution(env, file, report).node(root, "")


class _Substitution:
    def __init__(self, env: Mapping[str, str], file: str, report: Report) -> None:
        self._env = env
        self._file = file
        self._report = report
        self._done: dict[int, tuple[Node, Node]] = {}
        self._output = 0

    def node(self, node: Node, path: str) -> Node:
        known = self._done.get(id(node))
        if known is not None:  # an aliased node, already done
            return known[1]
        result: Node = node
        if isinstance(node, Map):
            items = {key: self.node(child, f"{path}.{key}" if path else key) for key, child in node.items.items()}
            result = Map(node.line, items, node.lines, node.size)
        elif isinstance(node, Seq):
            entries = [self.node(child, f"{path}[{index}]") for index, child in enumerate(node.items)]
            result = Seq(node.line, entries, node.size)
        elif isinstance(node.value, str) and "$" in node.value:
            result = self._scalar(node, Place(self._file, path, node.line))
        self._done[id(node)] = (node, result)
        return result

    def _scalar(self, node: Scalar, place: Place) -> Scalar:
        try:
            text = self._expand(node.text, place, 0)
            self._output += len(text)
            if self._output > MAX_OUTPUT:
                raise _Bad(f"the values grow beyond {MAX_OUTPUT} characters")
        except _Bad as bad:
            self._report.reject("R41", place, f"variable substitution: {bad}", "write `$$` for a plain `$`")
            return node
        # A mode is a text whatever the variable holds: an empty one must not count as a mode that was not written.
        plain = node.plain and not _MODE.fullmatch(place.path)
        return Scalar(resolve_plain(text) if plain else text, text, plain, node.line)

    def _expand(self, text: str, place: Place, nesting: int) -> str:
        if nesting > MAX_NESTING:
            raise _Bad(f"defaults nested deeper than {MAX_NESTING}")
        parts: list[str] = []
        position = 0
        while (found := text.find("$", position)) >= 0:
            parts.append(text[position:found])
            following = text[found + 1 : found + 2]
            name = _NAME.match(text, found + 1)
            if following == "$":
                parts.append("$")
                position = found + 2
            elif following == "{":
                end = _closing(text, found + 2)
                parts.append(self._braced(text[found + 2 : end], place, nesting))
                position = end + 1
            elif name:
                parts.append(self._value(name.group(), place))
                position = name.end()
            else:
                raise _Bad(f"`$` followed by {shown(following)}")
        parts.append(text[position:])
        return "".join(parts)

    def _braced(self, inner: str, place: Place, nesting: int) -> str:
        name = _NAME.match(inner)
        if name is None:
            raise _Bad(f"{shown('${' + inner + '}')} names no variable")
        rest = inner[name.end() :]
        if not rest:
            return self._value(name.group(), place)
        operator = next((known for known in _OPERATORS if rest.startswith(known)), None)
        if operator is None:
            raise _Bad(f"{shown('${' + inner + '}')} has an unknown form")
        argument = rest[len(operator) :]
        value = self._env.get(name.group())
        present = bool(value) if operator.startswith(":") else value is not None
        if operator.endswith("+"):
            return self._expand(argument, place, nesting + 1) if present else ""
        if present:
            return value or ""
        if operator.endswith("?"):
            raise _Bad(f"variable {name.group()} is required: {shown(argument)}")
        return self._expand(argument, place, nesting + 1)

    def _value(self, name: str, place: Place) -> str:
        value = self._env.get(name)
        if value is None:
            self._report.warn(
                "W14",
                place,
                f"variable {name} is not set and counts as empty",
                f"set it, or write ${{{name}:-default}}",
            )
            return ""
        return value


def _closing(text: str, start: int) -> int:
    depth = 1
    for position in range(start, len(text)):
        if text[position] == "}":
            depth -= 1
            if depth == 0:
                return position
        elif text.startswith("${", position):
            depth += 1
    raise _Bad("`${` is never closed")
