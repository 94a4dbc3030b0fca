"""The collector as a process: its answers, its restarts, its database going away under it."""

from __future__ import annotations

import contextlib
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
from gauntlet.telemetry.v1 import collector_service_pb2 as pb
from gauntlet.telemetry.v1 import collector_service_pb2_grpc as pb_grpc

from tests.support.collector import Collector
from tests.support.events import lines
from tests.support.postgres import Cluster
from wire.client import call, connect
from wire.errors import WireFailure


@pytest.fixture
def place() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="gcol-", dir="/tmp"))
    yield directory
    shutil.rmtree(directory)


@contextlib.asynccontextmanager
async def stub_of(collector: Collector) -> AsyncIterator[pb_grpc.CollectorServiceStub]:
    channel: grpc.aio.Channel = connect(collector.endpoint)
    try:
        yield pb_grpc.CollectorServiceStub(channel)
    finally:
        await channel.close(None)


def batch(first: int, count: int) -> pb.AppendEventsRequest:
    return pb.AppendEventsRequest(
        node_id="n",
        attempt_id="att_1",
        kind="resource",
        first_line=first,
        lines=lines(first + 1, count),
    )


CURSOR = pb.GetCursorRequest(attempt_id="att_1", kind="resource")


@pytest.fixture
def collector(place: Path) -> Iterator[Collector]:
    collector = Collector(place)
    collector.start()
    yield collector
    collector.stop()


async def test_what_was_acknowledged_survives_kill_9(collector: Collector) -> None:
    for round_ in range(3):
        async with stub_of(collector) as stub:
            assert (await call(stub.GetCursor, CURSOR)).next_line == round_ * 100
            answer = await call(stub.AppendEvents, batch(round_ * 100, 100))
            assert answer.next_line == (round_ + 1) * 100
        collector.kill()
        collector.start()
    store = collector.store()
    assert store.counts("att_1").events == {"resource": 300}
    store.close()


async def test_a_batch_above_the_cursor_is_told_where_to_begin(collector: Collector) -> None:
    async with stub_of(collector) as stub:
        await call(stub.AppendEvents, batch(0, 2))
        with pytest.raises(WireFailure) as caught:
            await call(stub.AppendEvents, batch(5, 2))
    assert (caught.value.code, caught.value.reason) == ("FAILED_PRECONDITION", "SEQUENCE_GAP")
    assert caught.value.metadata["next_line"] == "2"


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (pb.AppendEventsRequest(attempt_id="att_1", kind="resource", lines=[b"{}"] * 1_001), "BATCH_TOO_LARGE"),
        (pb.AppendEventsRequest(attempt_id="att_1", kind="resource", lines=[b"x" * (1 << 20)]), "BATCH_TOO_LARGE"),
        (pb.AppendEventsRequest(attempt_id="att_1", kind="resource", first_line=-1), "BAD_REQUEST"),
        (pb.AppendEventsRequest(attempt_id="att_1", kind="other"), "BAD_REQUEST"),
        (pb.AppendEventsRequest(attempt_id="", kind="resource"), "BAD_REQUEST"),
    ],
)
async def test_bad_batches_are_refused(collector: Collector, request_: pb.AppendEventsRequest, reason: str) -> None:
    async with stub_of(collector) as stub:
        with pytest.raises(WireFailure) as caught:
            await call(stub.AppendEvents, request_)
    assert (caught.value.code, caught.value.reason) == ("INVALID_ARGUMENT", reason)


def test_an_orderly_end_removes_the_socket_and_a_kill_does_not_block_the_next(collector: Collector) -> None:
    socket = Path(collector.endpoint.removeprefix("unix://"))
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600
    collector.kill()
    assert socket.exists()
    collector.start()
    assert collector.stop() == 0
    assert not socket.exists()


async def test_a_database_that_restarts_costs_nothing_that_was_acknowledged(place: Path) -> None:
    cluster = Cluster()
    cluster.initialise()
    cluster.start()
    collector = Collector(place, cluster.new_database())
    try:
        collector.start()
        async with stub_of(collector) as stub:
            await call(stub.AppendEvents, batch(0, 100))
            cluster.kill()
            with pytest.raises(WireFailure) as caught:
                await call(stub.AppendEvents, batch(100, 100), retries=0, timeout=30)
            assert (caught.value.code, caught.value.reason) == ("UNAVAILABLE", "STORE_UNAVAILABLE")
            cluster.start()
            assert (await call(stub.AppendEvents, batch(100, 100), retries=5)).next_line == 200
            assert (await call(stub.GetCursor, CURSOR)).next_line == 200
        store = collector.store()
        assert store.counts("att_1").events == {"resource": 200}
        store.close()
    finally:
        collector.stop()
        cluster.stop()
