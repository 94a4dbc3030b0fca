"""What every kind of local resource can do. Plain values in and out; Pulumi's types stay in `provider`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

State = dict[str, Any]
# An output that `read` sets to False for what is there but dead: the next `up` makes it anew, a `destroy` cleans up.
ALIVE = "alive"


class ResourceFailed(Exception):
    """A resource could not be made, changed or removed; the message says what to do."""


class Kind(ABC):
    """One kind of resource.

    `inputs` and `outputs` name its properties; `replaced_by` the inputs whose change makes a new one. A state that
    lacks one of them was written by another version of this provider: it counts as gone, and is made again.
    """

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    replaced_by: tuple[str, ...] = ()

    @abstractmethod
    def create(self, inputs: Mapping[str, Any]) -> tuple[str, State]:
        """Make it; returns its id and its outputs. Leaves nothing behind when it fails. Raises ResourceFailed."""

    @abstractmethod
    def read(self, resource_id: str, state: Mapping[str, Any]) -> State | None:
        """What is there now; None when it is gone, so that the next `up` makes it again."""

    def update(self, resource_id: str, state: Mapping[str, Any], inputs: Mapping[str, Any]) -> State:
        """Change it in place; by default make it again. Raises ResourceFailed."""
        _, outputs = self.create(inputs)
        return outputs

    @abstractmethod
    def delete(self, resource_id: str, state: Mapping[str, Any]) -> None:
        """Remove it. Idempotent. Raises ResourceFailed."""
