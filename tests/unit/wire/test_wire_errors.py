"""The wire's errors, deadlines and sockets, over a real gRPC server on a unix socket."""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path

import grpc
import pytest
from gauntlet.scheduler.v1 import scheduler_service_pb2 as pb
from gauntlet.scheduler.v1 import scheduler_service_pb2_grpc as pb_grpc
from grpc._cython import cygrpc

from wire import client, errors, request_ids, server, token
from wire.server import EndpointError, Server, socket_path

NAME = "gauntlet.scheduler.v1.SchedulerService"


class Servicer(pb_grpc.SchedulerServiceServicer):
    calls = 0

    async def GetAttempt(self, request, context):
        if request.attempt_id == "boom":
            raise ZeroDivisionError("secret internals")
        if request.attempt_id == "mapped":
            raise KeyError("x")
        raise errors.not_found("attempt", request.attempt_id)

    async def SubmitAttempt(self, request, context):
        type(self).calls += 1
        if type(self).calls < 3:
            raise errors.unavailable("DRAINING", "later", retry_after=0.01)
        return pb.SubmitAttemptResponse(attempt=pb.Attempt(attempt_id="att_1"))

    async def WatchAttempt(self, request, context):
        yield pb.WatchAttemptResponse(attempt=pb.Attempt(attempt_id="att_1"))
        raise errors.exhausted("QUEUE_FULL", "the queue is full", "queue", retry_after=2)


def translate(error: Exception) -> errors.WireError | None:
    return errors.invalid("KEY", "no such key") if isinstance(error, KeyError) else None


@pytest.fixture
async def stub(tmp_path):
    endpoint = f"unix://{tmp_path}/s.sock"
    server = Server(
        endpoint,
        {NAME: (pb_grpc.add_SchedulerServiceServicer_to_server, Servicer())},
        translate=translate,
        socket_mode=0o660,
    )
    await server.start()
    assert stat.S_IMODE((tmp_path / "s.sock").stat().st_mode) == 0o660
    async with client.connect(endpoint) as channel:
        yield pb_grpc.SchedulerServiceStub(channel)
    await server.stop(0)
    assert not (tmp_path / "s.sock").exists()


async def test_a_domain_error_arrives_with_reason_and_words(stub):
    with pytest.raises(errors.WireFailure) as caught:
        await client.call(stub.GetAttempt, pb.GetAttemptRequest(attempt_id="att_9"))
    assert (caught.value.code, caught.value.reason) == ("NOT_FOUND", "ATTEMPT_NOT_FOUND")
    assert "att_9" in caught.value.message


async def test_an_unknown_exception_tells_no_internals(stub):
    with pytest.raises(errors.WireFailure) as caught:
        await client.call(stub.GetAttempt, pb.GetAttemptRequest(attempt_id="boom"))
    assert (caught.value.code, caught.value.reason) == ("INTERNAL", "RUNTIME_FAULT")
    assert "secret" not in str(caught.value)


async def test_a_room_maps_its_own_exceptions(stub):
    with pytest.raises(errors.WireFailure) as caught:
        await client.call(stub.GetAttempt, pb.GetAttemptRequest(attempt_id="mapped"))
    assert (caught.value.code, caught.value.reason) == ("INVALID_ARGUMENT", "KEY")


async def test_a_unary_call_without_deadline_is_refused(stub):
    with pytest.raises(grpc.RpcError) as caught:
        await stub.GetAttempt(pb.GetAttemptRequest(attempt_id="att_9"))
    assert errors.decode(caught.value).reason == "DEADLINE_REQUIRED"


async def test_unavailable_is_retried_with_the_same_request(stub):
    Servicer.calls = 0
    answer = await client.call(stub.SubmitAttempt, pb.SubmitAttemptRequest(request_id=request_ids.new()))
    assert answer.attempt.attempt_id == "att_1"
    assert Servicer.calls == 3


async def test_a_stream_ends_with_its_error_and_retry_info(stub):
    seen = []
    with pytest.raises(grpc.RpcError) as caught:
        async for item in stub.WatchAttempt(pb.WatchAttemptRequest()):
            seen.append(item.attempt.attempt_id)
    failure = errors.decode(caught.value)
    assert seen == ["att_1"]
    assert (failure.code, failure.reason, failure.retry_after) == ("RESOURCE_EXHAUSTED", "QUEUE_FULL", 2)


@pytest.mark.parametrize("bad", ["unix:relative", "0.0.0.0:50051", "10.0.0.1:1", "unix:///" + "x" * 120])
def test_endpoints_beyond_this_machine_are_refused(bad):
    with pytest.raises(EndpointError):
        socket_path(bad)


def test_fingerprints_ignore_only_the_request_id():
    one = pb.SubmitAttemptRequest(request_id="a", agent_id="x")
    two = pb.SubmitAttemptRequest(request_id="b", agent_id="x")
    other = pb.SubmitAttemptRequest(request_id="a", agent_id="y")
    assert request_ids.fingerprint(one) == request_ids.fingerprint(two) != request_ids.fingerprint(other)


def test_a_token_holds_for_its_attempt_and_epoch_only():
    key = b"k" * 32
    good = token.mint(key, "att_abc", 7)
    assert token.verify(key, good) == ("att_abc", 7)
    forged = [
        good.replace("att_abc", "att_abd"),
        good.replace(".7.", ".8."),
        good[:-1] + "0",
        "",
        "gst1...",
        good + "\n",
    ]
    for bad in forged:
        with pytest.raises(errors.WireError):
            token.verify(key, bad)
    with pytest.raises(errors.WireError):
        token.verify(b"o" * 32, good)


def test_a_failure_passes_through_a_context_manager():
    @contextlib.contextmanager
    def manager():
        yield

    with pytest.raises(errors.WireFailure), manager():
        raise errors.WireFailure("NOT_FOUND", "X", "gone")


def test_every_channel_option_is_one_that_grpc_knows():
    """gRPC ignores a name that it does not know: a misspelt keepalive option once ended every idle stream."""
    library = Path(cygrpc.__file__).read_bytes()
    for name, _ in (*client.OPTIONS, *server.OPTIONS):
        assert name.encode() + b"\0" in library, name


class Verbose(pb_grpc.SchedulerServiceServicer):
    """Fails with as many and as long violations as the attempt's name says: COUNT-CHARACTERS-MESSAGE."""

    async def GetAttempt(self, request, context):
        count, length, message = map(int, request.attempt_id.split("-"))
        found = [(f"network/compose.yaml:{n}: services.web", f"R{n} " + "\u00e9" * length) for n in range(count)]
        raise errors.invalid("CHALLENGE_INVALID", "\u00e9" * message, found)


@pytest.fixture
async def verbose(tmp_path):
    """A stub on gRPC's default options: another language's client has no others."""
    endpoint = f"unix://{tmp_path}/v.sock"
    server = Server(endpoint, {NAME: (pb_grpc.add_SchedulerServiceServicer_to_server, Verbose())}, socket_mode=0o660)
    await server.start()
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/v.sock") as channel:
        yield pb_grpc.SchedulerServiceStub(channel)
    await server.stop(0)


async def failure_of(stub, count, length, message):
    with pytest.raises(errors.WireFailure) as caught:
        await client.call(stub.GetAttempt, pb.GetAttemptRequest(attempt_id=f"{count}-{length}-{message}"))
    assert caught.value.reason == "CHALLENGE_INVALID", caught.value
    return caught.value


async def test_a_dozen_problems_of_ordinary_length_arrive_whole(verbose):
    failure = await failure_of(verbose, 12, 200, 40)
    assert failure.violations == tuple(
        (f"network/compose.yaml:{n}: services.web", f"R{n} " + "\u00e9" * 200) for n in range(12)
    )


async def test_one_long_problem_arrives_up_to_two_thousand_characters(verbose):
    ((_, told),) = (await failure_of(verbose, 1, 1990, 0)).violations
    assert told == "R0 " + "\u00e9" * 1990
    ((_, cut),) = (await failure_of(verbose, 1, 9000, 0)).violations
    assert len(cut) == errors.MAX_MESSAGE_CHARS and cut.endswith("...")


@pytest.mark.parametrize(
    ("count", "length", "message"), [(1000, 5, 10), (300, 500, 500), (50, 5000, 2500), (3, 1, 9999)]
)
async def test_what_does_not_fit_is_counted_and_nothing_is_lost_silently(verbose, count, length, message):
    """An error that is larger than a receiver takes would arrive as a broken stream, without any reason."""
    failure = await failure_of(verbose, count, length, message)
    told = [entry for entry in failure.violations if entry[0]]
    assert [path for path, _ in told] == [f"network/compose.yaml:{n}: services.web" for n in range(len(told))]
    assert (told and len(told) < count) or count == 3
    if len(told) < count:
        assert failure.violations[-1] == ("", f"and {count - len(told)} more problems")
        assert f"and {count - len(told)} more problems" in str(failure)
