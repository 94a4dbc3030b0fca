"""EventService and AuditService over real sockets and real databases, as the scheduler mounts them."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
from gauntlet.audit.v1 import audit_service_pb2 as audit_pb
from gauntlet.audit.v1 import audit_service_pb2_grpc as audit_grpc
from gauntlet.telemetry.v1 import event_service_pb2 as event_pb
from gauntlet.telemetry.v1 import event_service_pb2_grpc as event_grpc

from formats import event
from records import audit_service, event_service
from records.database import open_engine
from records.events.sql import SqlEventStore
from records.events.sql import create_schema as create_events
from records.ledger.schema import create_schema as create_ledger
from records.ledger.sql import SqlLedger
from tests.support.events import START_NS, gap_line, lines, sample
from wire.client import call, connect
from wire.errors import WireFailure
from wire.server import Server


@pytest.fixture
def place() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="grec-", dir="/tmp"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
async def channel(place: Path) -> AsyncIterator[grpc.aio.Channel]:
    events = SqlEventStore(open_engine(f"sqlite:///{place}/events.db", read_only=True))
    ledger = SqlLedger(open_engine(f"sqlite:///{place}/audit.db", read_only=True))
    server = Server(
        f"unix://{place}/operator.sock",
        {
            event_service.SERVICE: (
                event_grpc.add_EventServiceServicer_to_server,
                event_service.EventService(events),
            ),
            audit_service.SERVICE: (
                audit_grpc.add_AuditServiceServicer_to_server,
                audit_service.AuditService(ledger),
            ),
        },
    )
    await server.start()
    channel = connect(server.endpoint)
    yield channel
    await channel.close(None)
    await server.stop(0)
    events.close()
    ledger.close()


@pytest.fixture
def store(place: Path) -> Iterator[SqlEventStore]:
    engine = open_engine(f"sqlite:///{place}/events.db")
    create_events(engine)
    store = SqlEventStore(engine)
    yield store
    store.close()


@pytest.fixture
def ledger(place: Path) -> Iterator[SqlLedger]:
    engine = open_engine(f"sqlite:///{place}/audit.db")
    create_ledger(engine)
    ledger = SqlLedger(engine)
    yield ledger
    ledger.close()


async def test_events_are_paged_filtered_and_counted(store: SqlEventStore, channel: grpc.aio.Channel) -> None:
    store.append("node", "att_1", "resource", 0, [*lines(1, 9), gap_line(10, 12)])
    store.append("node", "att_1", "process", 0, lines(1, 3, kind="process"))
    stub = event_grpc.EventServiceStub(channel)
    found: list[bytes] = []
    request = event_pb.ListEventsRequest(attempt_id="att_1", page_size=4)
    while True:
        answer = await call(stub.ListEvents, request)
        found += answer.events
        assert len(answer.events) <= 4
        if not answer.next_page_token:
            break
        request.page_token = answer.next_page_token
    assert len(found) == 13
    assert len(set(found)) == 13
    only = event_pb.ListEventsRequest(
        attempt_id="att_1", kind="resource", since_ns=START_NS + 2_000, until_ns=START_NS + 4_000
    )
    assert list((await call(stub.ListEvents, only)).events) == lines(2, 2)
    counts = await call(stub.CountEvents, event_pb.CountEventsRequest(attempt_id="att_1"))
    assert dict(counts.events) == {"resource": 9, "process": 3}
    assert dict(counts.gaps) == {"resource": 1}


async def test_long_lines_come_in_answers_that_fit_a_message(store: SqlEventStore, channel: grpc.aio.Channel) -> None:
    padding = "x" * 200_000
    long = [
        event.encode("process", "att_1", number, {**sample(number), "padding": padding}).rstrip(b"\n")
        for number in range(1, 61)
    ]
    for first in range(0, 60, 4):
        store.append("node", "att_1", "process", first, long[first : first + 4])
    stub = event_grpc.EventServiceStub(channel)
    found: list[bytes] = []
    request = event_pb.ListEventsRequest(attempt_id="att_1")
    while True:
        answer = await call(stub.ListEvents, request)
        found += answer.events
        if not answer.next_page_token:
            break
        request.page_token = answer.next_page_token
    assert found == long


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (event_pb.ListEventsRequest(attempt_id="att_1", kind="x"), "kind"),
        (event_pb.ListEventsRequest(attempt_id="att_1", page_token="x"), "page_token"),
        (event_pb.ListEventsRequest(attempt_id="att_1", page_size=-1), "page_size"),
        (event_pb.ListEventsRequest(attempt_id="att_1", since_ns=-1), "since_ns"),
        (event_pb.ListEventsRequest(), "attempt_id"),
    ],
)
async def test_bad_requests_name_the_field(
    store: SqlEventStore, channel: grpc.aio.Channel, request_: event_pb.ListEventsRequest, field: str
) -> None:
    with pytest.raises(WireFailure) as caught:
        await call(event_grpc.EventServiceStub(channel).ListEvents, request_)
    assert caught.value.code == "INVALID_ARGUMENT"
    assert caught.value.violations[0][0] == field


async def test_a_store_that_nobody_made_yet_is_unavailable(channel: grpc.aio.Channel) -> None:
    stub = event_grpc.EventServiceStub(channel)
    with pytest.raises(WireFailure) as caught:
        await call(stub.CountEvents, event_pb.CountEventsRequest(attempt_id="att_1"), retries=0)
    assert (caught.value.code, caught.value.reason) == ("UNAVAILABLE", "STORE_UNAVAILABLE")
    assert "no such table" not in caught.value.message


async def test_records_are_read_as_stored_and_the_ledger_is_verified(
    ledger: SqlLedger, channel: grpc.aio.Channel
) -> None:
    first = ledger.append("att_1", {"attempt_id": "att_1", "scores": {"composite": 81.5}})
    second = ledger.append("att_1", {"attempt_id": "att_1", "scores": {"composite": 90}}, revise=True)
    stub = audit_grpc.AuditServiceStub(channel)
    latest = await call(stub.GetRecord, audit_pb.GetRecordRequest(attempt_id="att_1"))
    assert (latest.record_json, latest.revision, latest.sequence) == (second.record, 2, 2)
    assert latest.entry_hash == second.entry_hash
    old = await call(stub.GetRecord, audit_pb.GetRecordRequest(attempt_id="att_1", revision=1))
    assert json.loads(old.record_json) == {"attempt_id": "att_1", "scores": {"composite": 81.5}}
    assert old.entry_hash == first.entry_hash
    report = await call(stub.VerifyLedger, audit_pb.VerifyLedgerRequest())
    assert (report.entries, report.head_hash, list(report.problems)) == (2, second.entry_hash, [])


async def test_an_absent_record_is_not_found_and_a_negative_revision_is_refused(
    ledger: SqlLedger, channel: grpc.aio.Channel
) -> None:
    stub = audit_grpc.AuditServiceStub(channel)
    for request in (
        audit_pb.GetRecordRequest(attempt_id="att_9"),
        audit_pb.GetRecordRequest(attempt_id="att_9", revision=3),
    ):
        with pytest.raises(WireFailure) as caught:
            await call(stub.GetRecord, request)
        assert caught.value.code == "NOT_FOUND"
    with pytest.raises(WireFailure) as caught:
        await call(stub.GetRecord, audit_pb.GetRecordRequest(attempt_id="att_9", revision=-1))
    assert caught.value.code == "INVALID_ARGUMENT"
