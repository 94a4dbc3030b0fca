"""SQLite against a model: any sequence of calls gives what the in-memory store gives, and survives reopening."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from formats.record import State
from scheduler.errors import SchedulerError
from scheduler.limits import Limits
from scheduler.model import ACTIVE, Active, NodeRow, Placement, Priority, QueueEntry, RequestKey
from scheduler.placement import Candidate, plan
from scheduler.store.engine import open_engine
from scheduler.store.memory import MemoryStore
from scheduler.store.port import ControlStore
from scheduler.store.sql import SqlStore
from tests.support.scheduling import new_attempt

NAMES = st.sampled_from([f"att_{n}" for n in range(6)])


def requests(verb: str) -> st.SearchStrategy[RequestKey]:
    """Request ids that are often used twice. A fingerprint names its verb, as `wire.request_ids.fingerprint` does."""
    bodies = st.sampled_from([f"{verb}-1", f"{verb}-2"])
    return st.builds(RequestKey, st.sampled_from(["op", "other"]), st.sampled_from(list("xyz")), bodies)


LIMITS = Limits(global_max=3, per_agent_max=1, per_challenge_max=2)


class StoreMachine(RuleBasedStateMachine):
    """Plays every call on both stores and compares answers, errors included."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.path = str(Path(self.directory.name) / "control.db")
        self.store: ControlStore = SqlStore(open_engine(self.path))
        self.model = MemoryStore()
        self.fences: dict[str, int] = {}
        self.inserted: set[str] = set()

    def both(self, call: Callable[[ControlStore], Any]) -> Any:
        def outcome(store: ControlStore) -> Any:
            try:
                return call(store)
            except (SchedulerError, ValueError) as error:
                return type(error), str(error)

        mine, models = outcome(self.store), outcome(self.model)
        assert mine == models
        return mine

    @initialize()
    def node(self) -> None:
        row = NodeRow(node_id="n1", endpoint="e", agent_endpoint="a", capacity=2)
        self.both(lambda store: store.put_node(row))

    @rule(name=NAMES, request=requests("insert"), priority=st.sampled_from(list(Priority)), agent=st.sampled_from("uv"))
    def insert(self, name: str, request: RequestKey, priority: Priority, agent: str) -> None:
        if name in self.inserted:
            return
        attempt = new_attempt(name, priority=priority, agent_id=agent)
        answer = self.both(lambda store: store.insert_attempt(request, attempt, 4))
        if answer[1] is True:
            self.inserted.add(name)

    @rule(
        name=NAMES,
        expected=st.sets(st.sampled_from(list(State)), min_size=1).map(frozenset),
        state=st.sampled_from(list(State)),
        request=st.none() | requests("change"),
        recorded=st.booleans(),
    )
    def change(
        self, name: str, expected: frozenset[State], state: State, request: RequestKey | None, recorded: bool
    ) -> None:
        changes = {"state": state, "recorded": recorded}
        self.both(lambda store: store.change(name, {"state": expected}, changes, request))

    @rule(capacity=st.integers(0, 3))
    def assign(self, capacity: int) -> None:
        def planner(queue: Sequence[QueueEntry], active: Active) -> list[Placement]:
            return plan(queue, active, [Candidate("n1", capacity), Candidate("n2", 1)], LIMITS)

        before = self.model.find({"state": ACTIVE})
        placed = self.both(lambda store: store.assign(planner))
        assert len(placed) <= max(0, LIMITS.global_max - len(before))
        for attempt in placed:
            assert attempt.fence > self.fences.get(attempt.attempt_id, 0)
            self.fences[attempt.attempt_id] = attempt.fence

    @rule(request=requests("drain"), node=st.sampled_from(["n1", "n9"]), draining=st.booleans())
    def drain(self, request: RequestKey, node: str, draining: bool) -> None:
        self.both(lambda store: store.set_draining(request, node, draining))

    @rule(boot=st.sampled_from(["b1", "b2"]), steady=st.floats(0, 1e6))
    def reboot(self, boot: str, steady: float) -> None:
        self.both(lambda store: store.adopt_clock(boot, steady))

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = SqlStore(open_engine(self.path))

    @rule(states=st.sets(st.sampled_from(list(State))), limit=st.integers(1, 4), before=st.none() | st.integers(1, 7))
    def page(self, states: set[State], limit: int, before: int | None) -> None:
        self.both(lambda store: store.page(limit=limit, before_seq=before, states=states))

    @invariant()
    def same_contents(self) -> None:
        self.both(lambda store: store.find({}))
        self.both(lambda store: store.find({"state": State.QUEUED}, order="queue"))
        self.both(lambda store: store.nodes())

    def teardown(self) -> None:
        self.store.close()
        self.directory.cleanup()


@pytest.mark.slow
def test_sqlite_equals_the_model() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=15,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            # A failing sequence of thirty calls can be read as it is; shrinking it takes minutes.
            phases=(Phase.explicit, Phase.reuse, Phase.generate),
        ),
    )
