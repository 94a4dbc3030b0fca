"""Strict access to the JSON of a policy object: every value is typed, every unknown key refused.

Owns the walk through mappings and lists and the naming of places; knows no policy kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from network.evaluate.errors import EvaluateError

__all__ = ["Reader"]


@dataclass(frozen=True)
class Reader:
    """One JSON value and where it lies, e.g. `CiliumNetworkPolicy/base: spec.egress[0].toPorts`."""

    value: Any
    where: str

    def fail(self, reason: str) -> EvaluateError:
        """The error for this place; the caller raises it."""
        return EvaluateError(self.where, reason)

    def mapping(self, allowed: frozenset[str] | None = None) -> Mapping[str, Any]:
        """This value as a mapping; with `allowed`, any other key is an error."""
        if not isinstance(self.value, Mapping):
            raise self.fail(f"expected a mapping, found {self.value!r}")
        if allowed is not None:
            unknown = sorted(str(key) for key in self.value if key not in allowed)
            if unknown:
                raise self.fail(f"the evaluator does not know {', '.join(unknown)}")
        return self.value

    def at(self, key: str) -> Reader:
        """The member `key`, None when it is absent."""
        return Reader(self.mapping().get(key), f"{self.where}.{key}" if self.where else key)

    def has(self, key: str) -> bool:
        """Whether the member is there and not null (null and absent mean the same to Kubernetes)."""
        return self.mapping().get(key) is not None

    def items(self) -> Iterator[Reader]:
        """The members of this list; null counts as empty."""
        if self.value is None:
            return
        if not isinstance(self.value, list):
            raise self.fail(f"expected a list, found {self.value!r}")
        for index, item in enumerate(self.value):
            yield Reader(item, f"{self.where}[{index}]")

    def text(self) -> str:
        """This value as a string."""
        if not isinstance(self.value, str):
            raise self.fail(f"expected a string, found {self.value!r}")
        return self.value

    def optional_text(self, default: str) -> str:
        """This value as a string, `default` when absent."""
        return default if self.value is None else self.text()

    def integer(self) -> int:
        """This value as a whole number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self.fail(f"expected a whole number, found {self.value!r}")
        return self.value

    def optional_flag(self) -> bool | None:
        """This value as true, false or absent."""
        if self.value is None or isinstance(self.value, bool):
            return self.value
        raise self.fail(f"expected true or false, found {self.value!r}")

    def text_mapping(self) -> dict[str, str]:
        """This value as a mapping of strings to strings; null counts as empty."""
        if self.value is None:
            return {}
        return {str(key): Reader(item, f"{self.where}.{key}").text() for key, item in self.mapping().items()}
