"""The local provider's own decisions: what changed, what is gone, what is dead."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi.provider.experimental import provider as p

from infra.local import provider
from infra.local.kinds.base import ALIVE, Kind, ResourceFailed
from infra.local.properties import plain_map, wrapped_map

URN = "urn:pulumi:s::gauntlet::gauntlet:environment:Local$gauntlet:local:Thing::thing"


class Thing(Kind):
    inputs = ("size", "place")
    outputs = ("made",)
    replaced_by = ("place",)

    def create(self, inputs: Any) -> Any:
        raise ResourceFailed("no room; make some")

    def read(self, resource_id: str, state: Any) -> Any:
        return dict(state)

    def delete(self, resource_id: str, state: Any) -> None:
        return None


@pytest.fixture
def served(monkeypatch):
    monkeypatch.setattr(provider, "KINDS", {"gauntlet:local:Thing": Thing()})
    return provider.LocalProvider()


def diff(old: dict[str, Any], new: dict[str, Any]) -> p.DiffRequest:
    return p.DiffRequest(URN, "id", wrapped_map(old), wrapped_map(new), [])


async def test_nothing_changes_while_the_inputs_are_the_same(served):
    answer = await served.diff(diff({"size": 1, "place": "a", "made": 2}, {"size": 1, "place": "a"}))
    assert not answer.changes


async def test_a_change_is_an_update_or_a_replacement(served):
    old = {"size": 1, "place": "a", "made": 2}
    update = await served.diff(diff(old, {"size": 2, "place": "a"}))
    assert update.changes
    assert not update.replaces
    replace = await served.diff(diff(old, {"size": 1, "place": "b"}))
    assert replace.replaces == ["place"]


async def test_what_is_there_but_dead_is_made_anew(served):
    answer = await served.diff(diff({"size": 1, "place": "a", ALIVE: False}, {"size": 1, "place": "a"}))
    assert answer.changes


async def test_a_state_of_another_version_counts_as_gone(served):
    read = await served.read(p.ReadRequest(URN, "id", wrapped_map({"size": 1, "place": "a"}), {}))
    assert read.resource_id == ""
    whole = {"size": 1, "place": "a", "made": 2}
    read = await served.read(p.ReadRequest(URN, "id", wrapped_map(whole), {}))
    assert plain_map(read.inputs) == {"size": 1, "place": "a"}


async def test_unknown_and_missing_properties_are_refused(served):
    answer = await served.check(p.CheckRequest(URN, {}, wrapped_map({"size": 1, "plaec": "a"}), b""))
    assert {failure.property for failure in answer.failures} == {"place", "plaec"}


async def test_a_refusal_comes_without_a_traceback(served):
    with pytest.raises(provider.Told) as caught:
        await served.create(p.CreateRequest(URN, wrapped_map({"size": 1, "place": "a"}), 0, False))
    assert caught.value.__traceback__ is None
