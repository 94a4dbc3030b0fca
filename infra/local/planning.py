"""What the provider decides about a resource, on plain values: what is wrong, what changed, what counts as gone.

Imports nothing of Pulumi, whose protocol code cannot share a process with googleapis' (both define google.rpc.Status).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.local.kinds.base import ALIVE, Kind


class Unknown:
    """A value that is only known once something else was made (previews)."""

    def __repr__(self) -> str:
        return "<unknown>"


UNKNOWN = Unknown()


def problems(kind: Kind, inputs: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(property, reason) for what a resource of this kind does not have, and for what it lacks."""
    unknown = [(name, "is no property of this resource") for name in sorted(set(inputs) - set(kind.inputs))]
    return unknown + [(name, "is missing") for name in kind.inputs if name not in inputs]


def changed(kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The properties that differ; what is there but dead differs too."""
    names = [name for name in kind.inputs if new.get(name) is UNKNOWN or new.get(name) != old.get(name)]
    return [*names, ALIVE] if old.get(ALIVE) is False else names


def whole(kind: Kind, state: Mapping[str, Any]) -> bool:
    """Whether a state has every property; one of another version has not, and counts as gone."""
    return all(name in state for name in (*kind.inputs, *kind.outputs))
