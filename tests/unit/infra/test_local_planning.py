"""The local provider's own decisions: what is wrong, what changed, what is gone, what is dead."""

from __future__ import annotations

from typing import Any

from infra.local import planning
from infra.local.kinds.base import ALIVE, Kind


class Thing(Kind):
    inputs = ("size", "place")
    outputs = ("made",)

    def create(self, inputs: Any) -> Any:
        raise NotImplementedError

    def read(self, resource_id: str, state: Any) -> Any:
        raise NotImplementedError

    def delete(self, resource_id: str, state: Any) -> None:
        raise NotImplementedError


OLD = {"size": 1, "place": "a", "made": 2}


def test_nothing_changes_while_the_inputs_are_the_same():
    assert planning.changed(Thing(), OLD, {"size": 1, "place": "a"}) == []


def test_a_change_and_an_unknown_value_are_seen():
    assert planning.changed(Thing(), OLD, {"size": 2, "place": "a"}) == ["size"]
    assert planning.changed(Thing(), OLD, {"size": 1, "place": planning.UNKNOWN}) == ["place"]


def test_what_is_there_but_dead_is_made_anew():
    assert planning.changed(Thing(), {**OLD, ALIVE: False}, {"size": 1, "place": "a"}) == [ALIVE]
    assert planning.changed(Thing(), {**OLD, ALIVE: True}, {"size": 1, "place": "a"}) == []


def test_a_state_of_another_version_counts_as_gone():
    assert planning.whole(Thing(), OLD)
    assert not planning.whole(Thing(), {"size": 1, "place": "a"})


def test_unknown_and_missing_properties_are_refused():
    found = planning.problems(Thing(), {"size": 1, "plaec": "a"})
    assert found == [("plaec", "is no property of this resource"), ("place", "is missing")]
