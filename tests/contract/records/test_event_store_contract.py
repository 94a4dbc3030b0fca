"""What every event store promises, run against each adapter: memory, SQLite, PostgreSQL."""

from __future__ import annotations

import base64
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import pytest

from formats import event
from records.database import open_engine
from records.errors import BadRequestError, SequenceGapError
from records.events.memory import MemoryEventStore
from records.events.port import EventCounts, EventQuery, EventStore
from records.events.sql import SqlEventStore, create_schema
from tests.support.events import START_NS, gap_line, line, lines
from tests.support.postgres import Cluster


def everything(store: EventStore, query: EventQuery, page_size: int = 0) -> list[bytes]:
    found, token = [], ""
    while True:
        page = store.list_events(query, page_size=page_size, page_token=token)
        found += page.lines
        token = page.next_page_token
        if not token:
            return found
        assert page.lines, "a page that promises more must hold something"


class EventStoreContract(ABC):
    @pytest.fixture
    @abstractmethod
    def store(self) -> Iterator[EventStore]: ...

    def test_a_new_stream_begins_at_zero_and_is_empty(self, store: EventStore) -> None:
        assert store.cursor("att_1", "resource") == 0
        assert everything(store, EventQuery("att_1")) == []
        assert store.counts("att_1") == EventCounts()

    def test_a_batch_is_read_back_byte_for_byte(self, store: EventStore) -> None:
        batch = lines(1, 5)
        assert store.append("node", "att_1", "resource", 0, batch) == 5
        assert everything(store, EventQuery("att_1")) == batch
        assert store.cursor("att_1", "resource") == 5
        assert store.counts("att_1") == EventCounts({"resource": 5}, {})

    def test_a_batch_sent_again_is_stored_once(self, store: EventStore) -> None:
        batch = lines(1, 5)
        for _ in range(3):
            assert store.append("node", "att_1", "resource", 0, batch) == 5
        assert everything(store, EventQuery("att_1")) == batch

    def test_a_batch_that_overlaps_the_cursor_adds_only_its_tail(self, store: EventStore) -> None:
        store.append("node", "att_1", "resource", 0, lines(1, 5))
        assert store.append("node", "att_1", "resource", 3, lines(4, 5)) == 8
        assert everything(store, EventQuery("att_1")) == lines(1, 8)

    def test_a_batch_beyond_the_cursor_is_refused_and_names_the_cursor(self, store: EventStore) -> None:
        store.append("node", "att_1", "resource", 0, lines(1, 2))
        with pytest.raises(SequenceGapError) as caught:
            store.append("node", "att_1", "resource", 3, lines(4, 1))
        assert caught.value.next_line == 2
        assert everything(store, EventQuery("att_1")) == lines(1, 2)
        with pytest.raises(SequenceGapError):
            store.append("node", "att_new", "resource", 1, lines(1, 1, "att_new"))
        assert store.cursor("att_new", "resource") == 0

    def test_streams_and_attempts_are_apart(self, store: EventStore) -> None:
        store.append("node", "att_1", "resource", 0, lines(1, 2))
        store.append("node", "att_1", "process", 0, lines(1, 1, kind="process"))
        store.append("node", "att_2", "resource", 0, lines(1, 3, "att_2"))
        assert store.cursor("att_1", "process") == 1
        assert everything(store, EventQuery("att_2")) == lines(1, 3, "att_2")
        assert everything(store, EventQuery("att_1", "process")) == lines(1, 1, kind="process")
        assert store.counts("att_1").events == {"resource": 2, "process": 1}

    def test_order_is_time_then_kind_then_sequence(self, store: EventStore) -> None:
        resource = [line(1, timestamp_ns=50), line(2, timestamp_ns=50), line(3, timestamp_ns=10)]
        process = [line(n, kind="process", timestamp_ns=t) for n, t in ((1, 10), (2, 50), (3, 60))]
        store.append("node", "att_1", "resource", 0, resource)
        store.append("node", "att_1", "process", 0, process)
        wanted = [process[0], resource[2], process[1], resource[0], resource[1], process[2]]
        for page_size in (0, 1, 2, 3, 5, 6):
            assert everything(store, EventQuery("att_1"), page_size) == wanted

    def test_time_bounds_take_the_beginning_and_leave_the_end_out(self, store: EventStore) -> None:
        batch = lines(1, 9)
        store.append("node", "att_1", "resource", 0, batch)
        query = EventQuery("att_1", since_ns=START_NS + 3_000, until_ns=START_NS + 6_000)
        for page_size in (1, 2, 100):
            assert everything(store, query, page_size) == batch[2:5]

    def test_pages_stay_whole_while_the_stream_grows(self, store: EventStore) -> None:
        store.append("node", "att_1", "resource", 0, lines(1, 4))
        page = store.list_events(EventQuery("att_1"), page_size=3)
        store.append("node", "att_1", "resource", 4, lines(5, 4))
        rest = store.list_events(EventQuery("att_1"), page_token=page.next_page_token)
        assert page.lines + rest.lines == lines(1, 8)
        assert rest.next_page_token == ""

    def test_a_gap_stands_behind_the_event_before_it_and_is_counted_apart(self, store: EventStore) -> None:
        batch = [line(1), gap_line(2, 4), line(5), gap_line(6, None)]
        store.append("node", "att_1", "resource", 0, batch)
        assert everything(store, EventQuery("att_1"), 1) == batch
        assert store.counts("att_1") == EventCounts({"resource": 2}, {"resource": 2})

    @pytest.mark.parametrize(
        "bad",
        [
            b"",
            b"{",
            b"\xff\xfe",
            b"[]",
            b"{}",
            b'{"kind":"resource","attempt_id":"att_1","sequence":0,"timestamp_ns":1}',
            b'{"kind":"resource","attempt_id":"att_1","sequence":true,"timestamp_ns":1}',
            b'{"kind":"resource","attempt_id":"att_1","sequence":1,"timestamp_ns":1e400}',
            b'{"kind":"resource","attempt_id":"att_1","sequence":1,"timestamp_ns":9223372036854775808}',
            b'{"kind":"resource","attempt_id":"att_2","sequence":1,"timestamp_ns":1}',
            b'{"kind":"process","attempt_id":"att_1","sequence":1,"timestamp_ns":1}',
            b'{"kind":"resource","attempt_id":"att_1","gap":{"first":1}}',
            b"[" * 100_000,
            b'{"x":"' + b"a" * event.MAX_LINE_BYTES + b'"}',
        ],
    )
    def test_a_malformed_line_becomes_a_gap_and_stops_nothing(self, store: EventStore, bad: bytes) -> None:
        assert store.append("node", "att_1", "resource", 0, [line(1), bad, line(3)]) == 3
        found = [json.loads(text) for text in everything(store, EventQuery("att_1"))]
        assert event.sequence_problems(found) == []
        assert found[1]["gap"]["first"] == found[1]["gap"]["last"] == 2
        assert found[1]["gap"]["reason"].startswith("malformed")

    def test_times_at_the_ends_of_the_range_can_be_paged(self, store: EventStore) -> None:
        batch = [line(1, timestamp_ns=0), line(2, timestamp_ns=2**63 - 1)]
        store.append("node", "att_1", "resource", 0, batch)
        store.append("node", "att_1", "process", 0, [line(1, kind="process", timestamp_ns=2**63 - 1)])
        assert len(everything(store, EventQuery("att_1"), 1)) == 3

    @pytest.mark.parametrize("kind", ["", "nothing", "resource "])
    def test_an_unknown_kind_is_refused(self, store: EventStore, kind: str) -> None:
        with pytest.raises(BadRequestError, match="one of tool_invocation"):
            store.append("node", "att_1", kind, 0, [])
        with pytest.raises(BadRequestError):
            store.cursor("att_1", kind)

    def test_odd_attempt_ids_are_refused_or_harmless(self, store: EventStore) -> None:
        for attempt_id in ("", "a" * 129, "att_\0", "att\n"):
            with pytest.raises(BadRequestError):
                store.append("node", attempt_id, "resource", 0, [])
        odd = "att_'; DROP TABLE events; --"
        store.append("node", odd, "resource", 0, lines(1, 1, odd))
        assert everything(store, EventQuery(odd)) == lines(1, 1, odd)

    @pytest.mark.parametrize(
        "token",
        [
            "x",
            "é",
            base64.urlsafe_b64encode(b"[1]").decode(),
            base64.urlsafe_b64encode(b'[true,"resource",1]').decode(),
            base64.urlsafe_b64encode(b'[1,"nothing",1]').decode(),
            base64.urlsafe_b64encode(b'[99999999999999999999,"resource",1]').decode(),
            base64.urlsafe_b64encode(b'{"a":1}').decode(),
        ],
    )
    def test_a_foreign_page_token_is_refused(self, store: EventStore, token: str) -> None:
        with pytest.raises(BadRequestError, match="page_token"):
            store.list_events(EventQuery("att_1"), page_token=token)

    def test_page_sizes_have_a_default_and_a_top(self, store: EventStore) -> None:
        for first in range(0, 6_000, 1_000):
            store.append("node", "att_1", "resource", first, lines(first + 1, 1_000))
        assert len(store.list_events(EventQuery("att_1"), page_size=0).lines) == 1_000
        assert len(store.list_events(EventQuery("att_1"), page_size=100_000).lines) == 5_000
        with pytest.raises(BadRequestError, match="page_size"):
            store.list_events(EventQuery("att_1"), page_size=-1)

    def test_threads_that_send_the_same_lines_store_each_once(self, store: EventStore) -> None:
        everyone = threading.Barrier(4)
        failures: list[BaseException] = []

        def ship() -> None:
            try:
                everyone.wait(timeout=10)
                for first in range(0, 200, 10):
                    store.append("node", "att_1", "resource", first, lines(first + 1, 10))
            except Exception as error:  # noqa: BLE001 - told by the test
                failures.append(error)

        threads = [threading.Thread(target=ship) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert everything(store, EventQuery("att_1")) == lines(1, 200)


class TestMemoryEventStore(EventStoreContract):
    @pytest.fixture
    def store(self) -> Iterator[EventStore]:
        yield MemoryEventStore()


class TestSqliteEventStore(EventStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[EventStore]:
        engine = open_engine(f"sqlite:///{tmp_path}/events.db")
        create_schema(engine)
        create_schema(engine)  # a second start finds its tables
        store = SqlEventStore(engine)
        yield store
        store.close()


class TestPostgresEventStore(EventStoreContract):
    @pytest.fixture
    def store(self, postgres_cluster: Cluster) -> Iterator[EventStore]:
        engine = open_engine(postgres_cluster.new_database())
        create_schema(engine)
        create_schema(engine)
        store = SqlEventStore(engine)
        yield store
        store.close()
