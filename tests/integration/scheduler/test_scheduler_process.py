"""The scheduler as a process: real gRPC on unix sockets, real SQLite, kill -9; the node is a scripted double."""

from __future__ import annotations

import asyncio
import json
import stat
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from gauntlet.audit.v1 import audit_service_pb2 as audit_pb
from gauntlet.scheduler.v1 import agent_gateway_service_pb2 as gateway_pb
from gauntlet.scheduler.v1 import judging_service_pb2 as judging_pb
from gauntlet.scheduler.v1 import scheduler_service_pb2 as pb
from gauntlet.telemetry.v1 import event_service_pb2 as event_pb

from formats.event import encode
from records.database import open_engine
from records.events.sql import SqlEventStore, create_schema
from tests.integration.scheduler.conftest import Node
from tests.support.scheduler_process import Clients, SchedulerProcess
from tests.support.scheduling import challenge_directory, packed
from wire import client, request_ids
from wire.errors import WireFailure, decode

QUEUED, STARTING, RUNNING = pb.ATTEMPT_STATE_QUEUED, pb.ATTEMPT_STATE_STARTING, pb.ATTEMPT_STATE_RUNNING
JUDGING, SCORED = pb.ATTEMPT_STATE_JUDGING, pb.ATTEMPT_STATE_SCORED
VOIDED, FAILED = pb.ATTEMPT_STATE_VOIDED, pb.ATTEMPT_STATE_FAILED
FINAL = (SCORED, VOIDED, FAILED)
Make = Callable[..., SchedulerProcess]


async def test_one_attempt_end_to_end(clients: Clients, node: Node, challenge: Path) -> None:
    digest = await clients.upload(challenge)
    submitted = await clients.submit(digest, "agent", priority=pb.PRIORITY_BOUT)
    before = json.loads(submitted.record_json)
    assert (before["outcome"], before["priority"]) == (None, "bout") and before["state"] in ("QUEUED", "STARTING")
    running = await clients.until(submitted.attempt_id, RUNNING)
    assert running.node_endpoint == "unix:///run/agents.sock" and running.node_id == "node-1"
    node.fake.end(running.attempt_id)
    assert await clients.judge(75.0) == running.attempt_id
    final = await clients.until(running.attempt_id, SCORED)
    record = json.loads(final.record_json)
    assert (record["state"], record["outcome"], record["scores"]["composite"]) == ("SCORED", "SUBMITTED", 75)
    assert final.artifact_path == f"/var/lib/node/{final.attempt_id}"
    kept = await client.call(clients.audit.GetRecord, audit_pb.GetRecordRequest(attempt_id=final.attempt_id))
    assert kept.record_json == final.record_json and (kept.revision, kept.sequence) == (1, 1)
    verified = await client.call(clients.audit.VerifyLedger, audit_pb.VerifyLedgerRequest())
    assert (verified.entries, list(verified.problems)) == (1, [])
    await node.fake.until(lambda: node.fake.count("release") == 1)


async def test_killed_with_one_running_and_three_queued_all_four_end_and_none_twice(
    scheduler: SchedulerProcess, clients: Clients, node: Node, challenge: Path
) -> None:
    await clients.heartbeat("node-1", node.endpoint, capacity=1)
    digest = await clients.upload(challenge)
    requests = {f"agent-{n}": request_ids.new() for n in range(4)}
    attempts = {agent: await clients.submit(digest, agent, key) for agent, key in requests.items()}
    names = {attempt.attempt_id for attempt in attempts.values()}
    first = await clients.until(attempts["agent-0"].attempt_id, RUNNING)
    states = Counter([(await clients.get(name)).state for name in names])
    assert states == {RUNNING: 1, QUEUED: 3}

    node.fake.on_running = lambda held: asyncio.get_running_loop().call_soon(node.fake.end, held.attempt_id)
    scheduler.kill()
    node.fake.end(first.attempt_id)  # while nobody watches
    await scheduler.start()

    clients = scheduler.connect()
    for agent, key in requests.items():  # clients that saw no answer ask again
        assert (await clients.submit(digest, agent, key)).attempt_id == attempts[agent].attempt_id
    for _ in range(4):
        await clients.judge()
    for name in names:
        final = await clients.until(name, *FINAL)
        assert (final.state, final.outcome) == (SCORED, pb.OUTCOME_SUBMITTED)
    listed = await client.call(clients.scheduler.ListAttempts, pb.ListAttemptsRequest())
    assert {attempt.attempt_id for attempt in listed.attempts} == names
    assert dict(node.fake.made) == dict.fromkeys(names, 1)
    verified = await client.call(clients.audit.VerifyLedger, audit_pb.VerifyLedgerRequest())
    assert (verified.entries, list(verified.problems)) == (4, [])
    await node.fake.until(lambda: not any(node.fake.live.values()))


async def test_killed_while_starting_the_claim_goes_on_under_the_same_request(
    scheduler: SchedulerProcess, clients: Clients, node: Node, challenge: Path
) -> None:
    node.fake.pause()
    attempt = await clients.submit(await clients.upload(challenge), "agent")
    await node.fake.until(lambda: node.fake.count("claim") == 1)
    scheduler.kill()
    node.fake.resume()
    await scheduler.start()
    running = await scheduler.connect().until(attempt.attempt_id, RUNNING)
    assert node.fake.made[attempt.attempt_id] == 1
    assert node.fake.attempts[running.attempt_id].fence == 1


async def test_the_same_request_three_times_is_one_attempt_and_another_body_is_refused(
    clients: Clients, challenge: Path
) -> None:
    digest = await clients.upload(challenge)
    key = request_ids.new()
    answers = [await clients.submit(digest, "agent", key) for _ in range(3)]
    assert len({answer.attempt_id for answer in answers}) == 1
    with pytest.raises(WireFailure) as refused:
        await clients.submit(digest, "another", key)
    assert (refused.value.code, refused.value.reason) == ("INVALID_ARGUMENT", "REQUEST_ID_REUSED")
    with pytest.raises(WireFailure) as malformed:
        await clients.submit(digest, "agent", "not-a-uuid")
    assert malformed.value.reason == "REQUEST_ID_INVALID"
    listed = await client.call(clients.scheduler.ListAttempts, pb.ListAttemptsRequest())
    assert len(listed.attempts) == 1


async def test_cancel_in_every_state(clients: Clients, node: Node, challenge: Path) -> None:
    digest = await clients.upload(challenge)
    await clients.heartbeat("node-1", node.endpoint, capacity=1)
    running = await clients.submit(digest, "runs")
    await clients.until(running.attempt_id, RUNNING)

    queued = await clients.submit(digest, "waits")
    gone = await clients.cancel(queued.attempt_id)
    assert (gone.state, gone.outcome, gone.fault) == (FAILED, pb.OUTCOME_CANCELLED, pb.FAULT_NONE)

    key = request_ids.new()
    for _ in range(3):
        await clients.cancel(running.attempt_id, key)
    ended = await clients.until(running.attempt_id, *FINAL)
    assert (ended.state, ended.outcome) == (SCORED, pb.OUTCOME_CANCELLED)
    assert json.loads(ended.record_json)["scores"] == {}

    node.fake.pause()
    starting = await clients.submit(digest, "starts")
    await clients.until(starting.attempt_id, STARTING)
    await clients.cancel(starting.attempt_id)
    node.fake.resume()
    ended = await clients.until(starting.attempt_id, *FINAL)
    assert ended.outcome == pb.OUTCOME_CANCELLED

    judged = await clients.submit(digest, "is-judged")
    await clients.until(judged.attempt_id, RUNNING)
    node.fake.end(judged.attempt_id)
    await clients.until(judged.attempt_id, JUDGING)
    assert (await clients.cancel(judged.attempt_id)).state == JUDGING
    await clients.judge()
    await clients.until(judged.attempt_id, SCORED)
    assert (await clients.cancel(judged.attempt_id)).outcome == pb.OUTCOME_SUBMITTED

    voided = await clients.submit(digest, "is-lost")
    await clients.until(voided.attempt_id, RUNNING)
    node.fake.lose(voided.attempt_id)
    await clients.until(voided.attempt_id, VOIDED)
    assert (await clients.cancel(voided.attempt_id)).state == VOIDED
    with pytest.raises(WireFailure) as unknown:
        await clients.cancel("att_unknown")
    assert (unknown.value.code, unknown.value.reason) == ("NOT_FOUND", "ATTEMPT_NOT_FOUND")


async def test_a_daemon_that_restarts_keeps_its_attempts(clients: Clients, node: Node, challenge: Path) -> None:
    attempt = await clients.submit(await clients.upload(challenge), "agent")
    await clients.until(attempt.attempt_id, RUNNING)
    await node.down()
    node.fake.end(attempt.attempt_id)
    await node.up()
    await clients.judge()
    assert (await clients.until(attempt.attempt_id, *FINAL)).outcome == pb.OUTCOME_SUBMITTED


async def test_a_node_that_dies_voids_within_its_lease(make_scheduler: Make, node: Node, challenge: Path) -> None:
    process = make_scheduler(node_lease_seconds=0.5, node_stale_seconds=0.2)
    await process.start()
    clients = process.connect()
    await clients.heartbeat("node-1", node.endpoint)
    attempt = await clients.submit(await clients.upload(challenge), "agent")
    await clients.until(attempt.attempt_id, RUNNING)
    await node.down()
    voided = await clients.until(attempt.attempt_id, *FINAL)
    assert (voided.state, voided.fault) == (VOIDED, pb.FAULT_PLATFORM)
    assert "silent" in voided.reason
    again = await clients.submit(attempt.challenge_digest, "agent", supersedes=attempt.attempt_id)
    assert again.supersedes == attempt.attempt_id and again.attempt_id != attempt.attempt_id
    await node.up()
    await clients.heartbeat("node-1", node.endpoint)
    await clients.until(again.attempt_id, RUNNING)
    await node.fake.until(lambda: node.fake.live[attempt.attempt_id] == 0)


async def test_a_full_queue_says_when_to_come_back(make_scheduler: Make, challenge: Path) -> None:
    process = make_scheduler(limits={"max_queue_depth": 2})
    await process.start()
    clients = process.connect()
    digest = await clients.upload(challenge)
    for n in range(2):
        await clients.submit(digest, f"agent-{n}")
    with pytest.raises(WireFailure) as full:
        await clients.submit(digest, "one-too-many")
    assert (full.value.code, full.value.reason) == ("RESOURCE_EXHAUSTED", "QUEUE_FULL")
    assert full.value.retry_after is not None
    queue = await client.call(clients.scheduler.GetQueue, pb.GetQueueRequest())
    assert ([a.agent_id for a in queue.attempts], queue.max_depth) == (["agent-0", "agent-1"], 2)


async def test_waiting_too_long_fails(make_scheduler: Make, challenge: Path) -> None:
    process = make_scheduler(limits={"queue_timeout_seconds": 0.3})
    await process.start()
    clients = process.connect()
    attempt = await clients.submit(await clients.upload(challenge), "agent")
    ended = await clients.until(attempt.attempt_id, *FINAL)
    assert (ended.state, ended.outcome, ended.fault) == (FAILED, pb.OUTCOME_VOIDED, pb.FAULT_PLATFORM)


async def test_uploads_are_checked(clients: Clients, tmp_path: Path) -> None:
    digest, data = packed(challenge_directory(tmp_path / "good", "good"))
    answer = await clients.upload_bytes(digest, data)
    assert (answer.digest, answer.challenge_id) == (digest, "good")
    assert (await clients.upload_bytes(digest, data)).challenge_id == "good"

    async def refusal(digest: str, data: bytes, size: int | None = None) -> WireFailure:
        with pytest.raises(grpc.RpcError) as caught:
            await clients.upload_bytes(digest, data, size)
        return decode(caught.value)

    other = "sha256:" + "0" * 64
    assert [f for f, _ in (await refusal(other, data)).violations] == ["digest"]
    assert [f for f, _ in (await refusal(other, data, len(data) + 1)).violations] == ["size_bytes"]
    assert [f for f, _ in (await refusal(other, data, 5)).violations] == ["size_bytes"]
    assert [f for f, _ in (await refusal("md5:1", data)).violations] == ["digest"]
    broken = challenge_directory(tmp_path / "bad", "bad", extra="colour: blue\nshape: round\n")
    failure = await refusal(*packed(broken))
    assert (failure.code, failure.reason) == ("INVALID_ARGUMENT", "CHALLENGE_INVALID")
    assert len(failure.violations) == 2 and "colour" in str(failure)
    with pytest.raises(WireFailure) as unknown:
        await clients.submit(other, "agent")
    assert unknown.value.reason == "CHALLENGE_NOT_FOUND"


async def test_an_upload_that_was_refused_leaves_nothing(
    scheduler: SchedulerProcess, clients: Clients, tmp_path: Path
) -> None:
    _, data = packed(challenge_directory(tmp_path / "c"))
    with pytest.raises(grpc.RpcError):
        await clients.upload_bytes("sha256:" + "0" * 64, data)
    assert list((scheduler.directory / "challenges").iterdir()) == []


async def test_a_worker_reads_the_challenge_it_judges(clients: Clients, challenge: Path) -> None:
    digest, data = packed(challenge)
    await clients.upload(challenge)
    received = b""
    async for piece in clients.judging.GetChallenge(judging_pb.GetChallengeRequest(digest=digest), timeout=10):
        received += piece.chunk
    assert received == data


async def test_a_token_opens_the_session_and_nothing_else(
    scheduler: SchedulerProcess, clients: Clients, node: Node, challenge: Path
) -> None:
    attempt = await clients.submit(await clients.upload(challenge), "agent")
    await clients.until(attempt.attempt_id, RUNNING)
    request = pb.IssueAttemptTokenRequest(attempt_id=attempt.attempt_id)
    issued = await client.call(clients.scheduler.IssueAttemptToken, request)
    ask = gateway_pb.GetSessionRequest(attempt_id=attempt.attempt_id)
    session = await client.call(clients.gateway.GetSession, ask, token=issued.token)
    assert (session.state, session.node_endpoint) == (RUNNING, issued.node_endpoint)
    assert session.deadline_time.seconds > 0
    for bad in (None, "x", issued.token[:-2] + "00"):
        with pytest.raises(WireFailure) as refused:
            await client.call(clients.gateway.GetSession, ask, token=bad)
        assert (refused.value.code, refused.value.reason) == ("UNAUTHENTICATED", "TOKEN_INVALID")
    with pytest.raises(WireFailure) as elsewhere:
        await client.call(
            clients.scheduler_on_agent_socket.GetAttempt,
            pb.GetAttemptRequest(attempt_id=attempt.attempt_id),
            token=issued.token,
        )
    assert elsewhere.value.code == "UNIMPLEMENTED"
    assert issued.token not in scheduler.log.read_text()
    assert issued.token.encode() not in (scheduler.directory / "control.db").read_bytes()
    node.fake.end(attempt.attempt_id)
    await clients.until(attempt.attempt_id, JUDGING)
    with pytest.raises(WireFailure) as late:
        await client.call(clients.scheduler.IssueAttemptToken, request)
    assert late.value.reason == "ATTEMPT_NOT_RUNNING"
    session = await client.call(clients.gateway.GetSession, ask, token=issued.token)
    assert (session.state, session.node_endpoint) == (JUDGING, "")


async def test_the_sockets_are_shut_and_open(scheduler: SchedulerProcess) -> None:
    def mode(name: str) -> int:
        return stat.S_IMODE((scheduler.directory / name).stat().st_mode)

    assert (mode("op.sock"), mode("ag.sock")) == (0o600, 0o666)


async def test_the_diff_comes_from_the_node(clients: Clients, node: Node, challenge: Path) -> None:
    attempt = await clients.submit(await clients.upload(challenge), "agent")
    await clients.until(attempt.attempt_id, RUNNING)
    request = pb.GetDiffRequest(attempt_id=attempt.attempt_id)

    async def diff() -> list[bytes]:
        try:
            stream = clients.scheduler.GetDiff(request, timeout=10)
            return [entry async for batch in stream for entry in batch.entries]
        except grpc.RpcError as error:
            raise decode(error) from error

    with pytest.raises(WireFailure) as early:
        await diff()
    assert early.value.reason == "NO_DIFF"
    node.fake.end(attempt.attempt_id)
    await clients.until(attempt.attempt_id, JUDGING)
    assert await diff() == node.fake.diff_entries
    await node.down()
    with pytest.raises(WireFailure) as away:
        await diff()
    assert (away.value.code, away.value.reason) == ("UNAVAILABLE", "NODE_UNREACHABLE")


async def test_a_network_file_is_checked_at_upload_and_explained_in_the_record(
    clients: Clients, node: Node, challenge: Path
) -> None:
    (challenge / "network").mkdir()
    compose = challenge / "network" / "compose.yaml"
    compose.write_text("services:\n  a: {network_mode: bridge}\n  b: {network_mode: none}\n")
    with (challenge / "challenge.yaml").open("a") as file:
        file.write("network: compose.yaml\n")
    with pytest.raises(grpc.RpcError) as caught:
        await clients.upload(challenge)
    refused = decode(caught.value)
    assert (refused.code, refused.reason) == ("INVALID_ARGUMENT", "CHALLENGE_INVALID")
    assert [field.split(": ")[0] for field, _ in refused.violations] == [
        "network/compose.yaml:2", "network/compose.yaml:2", "network/compose.yaml:3",
    ]  # fmt: skip
    assert all("R27 BACKEND_GAP" in words for _, words in refused.violations)
    service = [words.split(": ")[0].rpartition("(service ")[2] for _, words in refused.violations]
    assert service == ["a)", "a)", "b)"] and all("; " in words for _, words in refused.violations)

    wrong = "".join(f"  s{n}: {{network_mode: host, privileged: true, {'k' * 60}: 1}}\n" for n in range(200))
    compose.write_text("services:\n" + wrong)
    with pytest.raises(grpc.RpcError) as caught:
        await clients.upload(challenge)
    many = decode(caught.value)
    assert (many.code, many.reason) == ("INVALID_ARGUMENT", "CHALLENGE_INVALID")
    *told, (_, rest) = many.violations
    assert len(told) >= 5 and rest.startswith("and ") and rest.endswith(" more problems")
    for field, words in told:
        assert field.startswith("network/compose.yaml:") and ": services.s" in field and "; " in words
        assert words.startswith(
            ("R27 BACKEND_GAP (service s", "R1 NET_MODE_UNSUPPORTED (service s", "R11 COMPOSE_KEY (service s")
        )

    compose.write_text("services:\n  a: {network_mode: none}\n")
    attempt = await clients.submit(await clients.upload(challenge), "agent")
    record = json.loads((await clients.until(attempt.attempt_id, RUNNING)).record_json)
    assert record["network"]["services"]["a"]["internet"] == "none"


async def _streamed(stream: Any, field: str) -> list[Any]:
    try:
        return [getattr(message, field) async for message in stream]
    except grpc.RpcError as error:
        raise decode(error) from error


async def test_the_report_is_the_judges_documents_and_for_operators_only(
    clients: Clients, node: Node, challenge: Path
) -> None:
    attempt = await clients.submit(await clients.upload(challenge), "agent")
    await clients.until(attempt.attempt_id, RUNNING)
    request = pb.GetReportRequest(attempt_id=attempt.attempt_id)
    issued = await client.call(
        clients.scheduler.IssueAttemptToken, pb.IssueAttemptTokenRequest(attempt_id=attempt.attempt_id)
    )
    with pytest.raises(WireFailure) as early:
        await _streamed(clients.scheduler.GetReport(request, timeout=10), "chunk")
    assert (early.value.code, early.value.reason) == ("FAILED_PRECONDITION", "NO_REPORT")
    node.fake.end(attempt.attempt_id)
    large = b"x" * 1_300_000
    await clients.judge(documents={"test_results.json": large, "b.json": b"", "a.json": b"{}"})
    await clients.until(attempt.attempt_id, SCORED)
    collected: dict[str, bytes] = {}
    async for piece in clients.scheduler.GetReport(request, timeout=10):
        assert piece.judge == "objective" and len(piece.chunk) < 1 << 20
        collected[piece.name] = collected.get(piece.name, b"") + piece.chunk
    assert collected == {"a.json": b"{}", "b.json": b"", "test_results.json": large}
    assert list(collected) == sorted(collected)
    for method, wanted in (("GetReport", request), ("GetBlob", pb.GetBlobRequest(attempt_id=attempt.attempt_id))):
        stub = getattr(clients.scheduler_on_agent_socket, method)
        with pytest.raises(WireFailure) as elsewhere:
            await _streamed(stub(wanted, timeout=10, metadata=client.bearer(issued.token)), "chunk")
        assert elsewhere.value.code == "UNIMPLEMENTED"
    with pytest.raises(WireFailure) as unknown:
        await _streamed(clients.scheduler.GetReport(pb.GetReportRequest(attempt_id="att_0"), timeout=10), "chunk")
    assert unknown.value.reason == "ATTEMPT_NOT_FOUND"


async def test_a_blob_is_served_only_when_the_attempts_own_events_name_it(
    scheduler: SchedulerProcess, clients: Clients, node: Node, challenge: Path
) -> None:
    digest = await clients.upload(challenge)
    mine, other = [(await clients.submit(digest, agent)).attempt_id for agent in ("mine", "other")]
    for name in (mine, other):
        await clients.until(name, RUNNING)
    written, elsewhere, dropped = ("sha256:" + letter * 64 for letter in "abc")
    node.fake.blobs = {written: [b"one", b"two"], elsewhere: [b"secret"], dropped: [b"x"]}
    engine = open_engine(f"sqlite:///{scheduler.directory}/events.db")
    create_schema(engine)
    store = SqlEventStore(engine)
    for name, events in {
        mine: [
            ("write_file", {"path": "a", "content": {"sha256": written, "size_bytes": 6, "stored": True}}),
            # An agent that says another attempt's digest does not open it.
            ("exec", {"argv": ["echo", elsewhere], "exec_id": "exe_1"}),
            ("write_file", {"path": "b", "content": {"sha256": dropped, "size_bytes": 1, "stored": False}}),
        ],
        other: [("write_file", {"path": "a", "content": {"sha256": elsewhere, "size_bytes": 6, "stored": True}})],
    }.items():
        lines = [
            encode(
                "tool_invocation", name, number, {"timestamp_ns": number, "tool_name": tool, "arguments": arguments}
            ).rstrip(b"\n")
            for number, (tool, arguments) in enumerate(events, start=1)
        ]
        store.append("node-1", name, "tool_invocation", 0, lines)
    store.close()

    async def blob(attempt_id: str, wanted: str) -> list[bytes]:
        request = pb.GetBlobRequest(attempt_id=attempt_id, digest=wanted)
        return await _streamed(clients.scheduler.GetBlob(request, timeout=10), "chunk")

    assert await blob(mine, written) == [b"one", b"two"]
    assert await blob(other, elsewhere) == [b"secret"]
    asked = node.fake.count("blob")
    for name, wanted in ((mine, elsewhere), (other, written), (mine, dropped), (mine, ""), (mine, "sha256:")):
        with pytest.raises(WireFailure) as refused:
            await blob(name, wanted)
        assert (refused.value.code, refused.value.reason) == ("NOT_FOUND", "BLOB_NOT_FOUND")
    assert node.fake.count("blob") == asked, "the node is not even asked"
    del node.fake.blobs[written]
    with pytest.raises(WireFailure) as gone:
        await blob(mine, written)
    assert gone.value.reason == "BLOB_NOT_FOUND"
    await node.down()
    with pytest.raises(WireFailure) as away:
        await blob(mine, written)
    assert (away.value.code, away.value.reason) == ("UNAVAILABLE", "NODE_UNREACHABLE")


async def test_the_list_pages_and_filters(clients: Clients, challenge: Path) -> None:
    await client.call(
        clients.scheduler.DrainNode, pb.DrainNodeRequest(request_id=request_ids.new(), node_id="node-1", drain=True)
    )
    digest = await clients.upload(challenge)
    names = [(await clients.submit(digest, f"agent-{n}")).attempt_id for n in range(5)]
    await clients.cancel(names[2])
    found, token = [], ""
    while True:
        page = await client.call(clients.scheduler.ListAttempts, pb.ListAttemptsRequest(page_size=2, page_token=token))
        found += [attempt.attempt_id for attempt in page.attempts]
        assert not any(attempt.record_json for attempt in page.attempts)
        token = page.next_page_token
        if not token:
            break
    assert found == names[::-1]
    failed = await client.call(clients.scheduler.ListAttempts, pb.ListAttemptsRequest(states=[FAILED]))
    assert [attempt.attempt_id for attempt in failed.attempts] == [names[2]]
    for bad in (pb.ListAttemptsRequest(page_token="x"), pb.ListAttemptsRequest(page_size=-1)):
        with pytest.raises(WireFailure) as refused:
            await client.call(clients.scheduler.ListAttempts, bad)
        assert refused.value.code == "INVALID_ARGUMENT"


async def test_nodes_are_listed_drained_and_refused(clients: Clients, node: Node, challenge: Path) -> None:
    key = request_ids.new()
    for _ in range(2):
        drained = await client.call(
            clients.scheduler.DrainNode, pb.DrainNodeRequest(request_id=key, node_id="node-1", drain=True)
        )
    assert drained.node.draining and not drained.node.stale
    assert (await clients.heartbeat("node-1", node.endpoint)).draining
    listed = await client.call(clients.scheduler.ListNodes, pb.ListNodesRequest())
    assert [(n.node_id, n.capacity, n.draining) for n in listed.nodes] == [("node-1", 4, True)]
    for node_id, endpoint in (("", node.endpoint), ("node-2", "http://example.com"), ("node-2", "relative.sock:x")):
        with pytest.raises(WireFailure) as refused:
            await clients.heartbeat(node_id, endpoint)
        assert refused.value.code == "INVALID_ARGUMENT" and refused.value.violations


async def test_events_are_served_from_the_event_store(scheduler: SchedulerProcess, clients: Clients) -> None:
    engine = open_engine(f"sqlite:///{scheduler.directory}/events.db")
    create_schema(engine)
    store = SqlEventStore(engine)
    line = json.dumps(
        {
            "kind": "resource",
            "attempt_id": "att_1",
            "sequence": 1,
            "timestamp_ns": 5,
            "cpu_usage_percent": 1.0,
        }
    ).encode()
    store.append("node-1", "att_1", "resource", 0, [line])
    store.close()
    counted = await client.call(clients.events.CountEvents, event_pb.CountEventsRequest(attempt_id="att_1"))
    assert sum(counted.events.values()) + sum(counted.gaps.values()) == 1


async def test_sigterm_ends_it_in_order_and_the_state_is_taken_up_again(
    scheduler: SchedulerProcess, clients: Clients, node: Node, challenge: Path
) -> None:
    attempt = await clients.submit(await clients.upload(challenge), "agent")
    await clients.until(attempt.attempt_id, RUNNING)
    assert await scheduler.terminate() == 0
    await scheduler.start()
    assert (await scheduler.connect().get(attempt.attempt_id)).state == RUNNING
    assert "exception" not in scheduler.log.read_text()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"colour": "blue"}, "colour: unknown key"),
        ({"limits": {"per_agent_mx": 2}}, "did you mean 'per_agent_max'?"),
        ({"operator_endpoint": "0.0.0.0:80"}, "only unix:///path and loopback"),
        ({"token_key_file": "/nonexistent/key"}, "32 random bytes"),
        ({"events_db": "/nonexistent/events.db"}, "no directory"),
        ({"state_dir": "/nonexistent"}, "is no directory"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_settings_that_cannot_work_are_named(short: Path, change: dict[str, object], words: str) -> None:
    process = SchedulerProcess(short, **change)
    ran = subprocess.run(process.command(), capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1
    assert words in ran.stderr and "Traceback" not in ran.stderr


async def test_a_second_scheduler_on_the_same_state_is_refused(scheduler: SchedulerProcess) -> None:
    ran = await asyncio.to_thread(subprocess.run, scheduler.command(), capture_output=True, text=True, timeout=60)
    assert ran.returncode == 1 and "another scheduler works there" in ran.stderr


def test_usage(tmp_path: Path) -> None:
    command = SchedulerProcess(tmp_path).command()[:3]
    assert subprocess.run(command, capture_output=True, timeout=60).returncode == 2
    missing = subprocess.run([*command, "--config", "/nonexistent.json"], capture_output=True, text=True, timeout=60)
    assert missing.returncode == 1 and "/nonexistent.json" in missing.stderr
