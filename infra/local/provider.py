"""The provider `gauntlet`: Pulumi's calls to the kinds of `infra.local.kinds`, nothing else."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pulumi.provider.experimental import provider as p
from pulumi.provider.experimental import server

from infra.local import planning
from infra.local.kinds.base import Kind, ResourceFailed
from infra.local.kinds.files import SeccompProfile
from infra.local.kinds.image import StackImage
from infra.local.kinds.installation import Installation
from infra.local.kinds.runtime import RuntimeRegistration
from infra.local.kinds.service import Service
from infra.local.properties import plain_map, wrapped_map

NAME = "gauntlet"
VERSION = "0.1.0"
Answer = TypeVar("Answer")
KINDS: Mapping[str, Kind] = {
    "gauntlet:local:Installation": Installation(),
    "gauntlet:local:Runtime": RuntimeRegistration(),
    "gauntlet:local:SeccompProfile": SeccompProfile(),
    "gauntlet:local:StackImage": StackImage(),
    "gauntlet:local:Service": Service(),
}


class Told(Exception):
    """A refusal for the person at the terminal. The SDK prints a traceback where there is one; a refusal has none."""

    __traceback__ = property(lambda self: None)


async def _in_thread(work: Callable[..., Answer], *arguments: Any) -> Answer:
    try:
        return await asyncio.to_thread(work, *arguments)
    except ResourceFailed as error:
        raise Told(str(error)) from None


class LocalProvider(p.Provider):
    """Serves the kinds. Blocking work runs in threads: the engine asks for several resources at once."""

    async def get_schema(self, request: p.GetSchemaRequest) -> p.GetSchemaResponse:
        """A schema with no types: the program's resource classes are written by hand."""
        return p.GetSchemaResponse(schema=json.dumps({"name": NAME, "version": VERSION}))

    async def check_config(self, request: p.CheckRequest) -> p.CheckResponse:
        """The provider has no settings."""
        return p.CheckResponse(inputs=request.new_inputs)

    async def diff_config(self, request: p.DiffRequest) -> p.DiffResponse:
        """The provider has no settings."""
        return p.DiffResponse()

    async def configure(self, request: p.ConfigureRequest) -> p.ConfigureResponse:
        """The provider has no settings."""
        return p.ConfigureResponse()

    async def check(self, request: p.CheckRequest) -> p.CheckResponse:
        """Refuse properties that a kind does not have, and missing ones."""
        kind = _kind(request.urn)
        failures = [p.CheckFailure(name, why) for name, why in planning.problems(kind, request.new_inputs)]
        return p.CheckResponse(inputs=request.new_inputs, failures=failures or None)

    async def create(self, request: p.CreateRequest) -> p.CreateResponse:
        """Make a resource."""
        if request.preview:
            return p.CreateResponse(resource_id="", properties=request.properties)
        kind = _kind(request.urn)
        resource_id, outputs = await _in_thread(kind.create, plain_map(request.properties))
        return p.CreateResponse(resource_id=resource_id, properties=wrapped_map(outputs))

    async def diff(self, request: p.DiffRequest) -> p.DiffResponse:
        """What changes, by input."""
        kind = _kind(request.urn)
        old, new = plain_map(request.old_state), plain_map(request.new_inputs)
        changed = planning.changed(kind, old, new)
        replaces = [name for name in changed if name in kind.replaced_by]
        return p.DiffResponse(
            changes=bool(changed), replaces=replaces or None, diffs=changed or None, delete_before_replace=True
        )

    async def read(self, request: p.ReadRequest) -> p.ReadResponse:
        """What is there; an empty id says that it is gone."""
        kind = _kind(request.urn)
        known = plain_map(request.properties)
        there = planning.whole(kind, known)
        state = await _in_thread(kind.read, request.resource_id, known) if there else None
        if state is None:
            return p.ReadResponse(resource_id="", properties={}, inputs={})
        inputs = {name: state[name] for name in kind.inputs}
        return p.ReadResponse(
            resource_id=request.resource_id, properties=wrapped_map(state), inputs=wrapped_map(inputs)
        )

    async def update(self, request: p.UpdateRequest) -> p.UpdateResponse:
        """Change a resource in place."""
        if request.preview:
            return p.UpdateResponse(properties=request.news)
        kind = _kind(request.urn)
        outputs = await _in_thread(kind.update, request.resource_id, plain_map(request.olds), plain_map(request.news))
        return p.UpdateResponse(properties=wrapped_map(outputs))

    async def delete(self, request: p.DeleteRequest) -> None:
        """Remove a resource."""
        await _in_thread(_kind(request.urn).delete, request.resource_id, plain_map(request.properties))


def _kind(urn: str) -> Kind:
    """The kind behind a URN (urn:pulumi:stack::project::parent$type::name)."""
    type_name = urn.split("::")[2].split("$")[-1]
    kind = KINDS.get(type_name)
    if kind is None:
        raise ValueError(f"the provider {NAME} has no resource {type_name}")
    return kind


def main(arguments: list[str]) -> Any:
    """Serve the engine that started us."""
    return server.main(arguments, VERSION, LocalProvider())


if __name__ == "__main__":
    main(sys.argv[1:])
