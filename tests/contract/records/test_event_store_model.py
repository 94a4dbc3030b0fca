"""The SQL stores behave as the store in memory does, whatever is appended and asked: a state machine on each."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from records.database import open_engine
from records.errors import SequenceGapError
from records.events.memory import MemoryEventStore
from records.events.port import EventQuery, EventStore
from records.events.sql import SqlEventStore, create_schema
from tests.support.events import gap_line, line
from tests.support.postgres import Cluster

ATTEMPTS = st.sampled_from(["att_1", "att_2"])
KINDS = st.sampled_from(["process", "resource", "tool_invocation"])
TIMES = st.integers(0, 12)
# What one spooled line may be: an event at a time, a gap, or rubbish.
CONTENT = st.one_of(TIMES, TIMES, TIMES, st.sampled_from(["gap", "rubbish"]))


def made(content: int | str, number: int, attempt_id: str, kind: str) -> bytes:
    if content == "gap":
        return gap_line(number + 1, number + 3, attempt_id, kind)
    if content == "rubbish":
        return b"\xff{"
    return line(number + 1, attempt_id, kind, timestamp_ns=int(content))


def answer(store: EventStore, attempt_id: str, kind: str, first: int, lines: list[bytes]) -> int | tuple[str, int]:
    try:
        return store.append("node", attempt_id, kind, first, lines)
    except SequenceGapError as error:
        return "gap", error.next_line


class StoreMachine(RuleBasedStateMachine):
    url: ClassVar[str] = ""

    def __init__(self) -> None:
        super().__init__()
        self.model = MemoryEventStore()
        self.engine = open_engine(self.url)
        create_schema(self.engine)
        self.store = SqlEventStore(self.engine)
        with self.engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM events")
            connection.exec_driver_sql("DELETE FROM event_streams")

    @rule(attempt_id=ATTEMPTS, kind=KINDS, shift=st.integers(-3, 1), contents=st.lists(CONTENT, max_size=6))
    def append(self, attempt_id: str, kind: str, shift: int, contents: list[int | str]) -> None:
        first = max(0, self.model.cursor(attempt_id, kind) + shift)
        lines = [made(content, first + index, attempt_id, kind) for index, content in enumerate(contents)]
        both = [answer(store, attempt_id, kind, first, lines) for store in (self.model, self.store)]
        assert both[0] == both[1]

    @rule(
        attempt_id=ATTEMPTS,
        kind=st.none() | KINDS,
        since=st.none() | TIMES,
        until=st.none() | TIMES,
        size=st.integers(1, 5),
    )
    def read_through(self, attempt_id: str, kind: str | None, since: int | None, until: int | None, size: int) -> None:
        query = EventQuery(attempt_id, kind, since, until)
        token, seen = "", []
        while True:
            ours = self.store.list_events(query, page_size=size, page_token=token)
            theirs = self.model.list_events(query, page_size=size, page_token=token)
            assert ours == theirs
            seen += ours.lines
            token = ours.next_page_token
            if not token:
                break
        assert seen == self.model.list_events(query, page_size=5_000).lines

    @rule()
    def restart(self) -> None:
        self.store.close()

    @invariant()
    def counts_and_cursors_agree(self) -> None:
        for attempt_id in ("att_1", "att_2"):
            assert self.store.counts(attempt_id) == self.model.counts(attempt_id)
            for kind in ("process", "resource", "tool_invocation"):
                assert self.store.cursor(attempt_id, kind) == self.model.cursor(attempt_id, kind)

    def teardown(self) -> None:
        self.store.close()


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_the_sql_store_behaves_as_the_model(dialect: str, request: pytest.FixtureRequest) -> None:
    with tempfile.TemporaryDirectory() as directory:
        if dialect == "postgres":
            cluster: Cluster = request.getfixturevalue("postgres_cluster")
            url = cluster.new_database()
        else:
            url = f"sqlite:///{Path(directory) / 'events.db'}"
        machine = type("Machine", (StoreMachine,), {"url": url})
        chosen = settings(
            max_examples=15,
            stateful_step_count=15,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        )
        run_state_machine_as_test(machine, settings=chosen)
