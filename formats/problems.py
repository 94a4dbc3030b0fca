"""How every reader of a format says what is wrong: file, key, problem, remedy; all problems at once.

Turns pydantic's and YAML's errors into the same shape. Owns no format.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

Model = TypeVar("Model", bound=BaseModel)
# A format file is written by hand; anything larger is a mistake or an attack.
MAX_YAML_BYTES = 1_000_000


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. `key` is a dotted path, empty when the whole file is meant."""

    file: str
    key: str
    message: str
    remedy: str

    def __str__(self) -> str:
        where = f"{self.file}: {self.key}: " if self.key else f"{self.file}: "
        return f"{where}{self.message}; {self.remedy}" if self.remedy else f"{where}{self.message}"


class FormatError(ValueError):
    """A file or directory that does not fit its format; `problems` holds every one found."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class _Loader(yaml.SafeLoader):
    """Safe YAML that refuses duplicate keys and aliases: neither has a use in our formats, both hide surprises."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.events.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(None, None, "aliases are not supported", event.start_mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.MarkedYAMLError(None, None, f"key {key!r} is not a string", key_node.start_mark)
            if key in seen:
                raise yaml.MarkedYAMLError(None, None, f"duplicate key {key!r}", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def load_yaml(text: bytes, file: str) -> dict[str, Any]:
    """The mapping of a YAML file. Raises FormatError, with the line, for anything else."""
    if len(text) > MAX_YAML_BYTES:
        raise FormatError([Problem(file, "", f"is {len(text)} bytes", f"keep it under {MAX_YAML_BYTES} bytes")])
    try:
        loaded = yaml.load(text.decode("utf-8"), Loader=_Loader)
    except UnicodeDecodeError as error:
        raise FormatError([Problem(file, "", f"is not UTF-8 (byte {error.start})", "save it as UTF-8")]) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        words = str(getattr(error, "problem", None) or error).splitlines()[0]
        where = f" at line {mark.line + 1}" if mark is not None else ""
        raise FormatError([Problem(file, "", f"is not valid YAML{where}: {words}", "mend that line")]) from error
    if not isinstance(loaded, dict):
        raise FormatError([Problem(file, "", "is not a mapping", "write `key: value` lines")])
    return loaded


def validate(model: type[Model], data: Mapping[str, Any], file: str) -> Model:
    """`data` as a `model`. Raises FormatError with one problem per bad key, naming the nearest known key."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise FormatError(list(_problems(model, error, file))) from error


def _problems(model: type[BaseModel], error: ValidationError, file: str) -> Iterable[Problem]:
    for item in error.errors():
        location = [str(part) for part in item["loc"] if not str(part).startswith("function-")]
        key = ".".join(location)
        if item["type"] == "extra_forbidden":
            yield Problem(file, key, "unknown key", _nearest(location[-1], _fields(model, location[:-1])))
        elif item["type"] == "missing":
            yield Problem(file, key, "is missing", "add it")
        else:
            words = item["msg"].removeprefix("Value error, ")
            yield Problem(file, key, f"{_shown(item.get('input'))}: {words}", "")


def _fields(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    """The known keys of the (nested) model at `path`."""
    current: Any = model
    for part in path:
        fields = getattr(current, "model_fields", {})
        if part not in fields:
            return []
        candidates = (fields[part].annotation, *getattr(fields[part].annotation, "__args__", ()))
        current = next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)
    return list(getattr(current, "model_fields", {}))


def _nearest(key: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known keys: {', '.join(known)}" if known else "remove it"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
