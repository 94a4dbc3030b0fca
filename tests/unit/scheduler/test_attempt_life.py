"""An attempt's life on in-process parts: every path from submission to record, and every way off it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from gauntlet.daemon.v1 import daemon_service_pb2 as daemon_pb
from gauntlet.scheduler.v1 import judging_service_pb2 as judging_pb

from formats.problems import FormatError
from formats.record import Fault, Outcome, State
from scheduler.errors import BadInput, LeaseLost, NotLive, QueueFull
from scheduler.limits import Limits
from scheduler.model import Attempt, Priority
from tests.support.fake_daemon import FakeNode
from tests.support.scheduling import Bench, ManualClock, challenge_directory, request_key
from wire import errors
from wire.errors import WireError
from wire.token import verify

MakeBench = Callable[..., Bench]


def running(attempt: Attempt) -> bool:
    return attempt.state is State.RUNNING


def over(attempt: Attempt) -> bool:
    return attempt.over


async def started(bench: Bench, challenge: Path, agent: str = "agent") -> Attempt:
    """One RUNNING attempt."""
    digest = await bench.upload(challenge)
    attempt = await bench.submit(digest, agent)
    return await bench.until(attempt.attempt_id, running)


async def test_from_submission_to_record(bench: Bench, challenge: Path) -> None:
    await bench.start()
    attempt = await started(bench, challenge)
    node = bench.nodes["node-1"]
    assert (attempt.node_id, attempt.fence, node.made[attempt.attempt_id]) == ("node-1", 1, 1)
    assert node.count("put_challenge") == 1
    node.end(attempt.attempt_id, signals=[("SIGTERM", "submit")])
    await bench.judge(82.0)
    ended = await bench.until(attempt.attempt_id, over)
    assert (ended.state, ended.outcome, ended.fault) == (State.SCORED, Outcome.SUBMITTED, Fault.NONE)
    await node.until(lambda: node.count("release", attempt.attempt_id) == 1)
    entry = bench.ledger.get(attempt.attempt_id)
    assert entry is not None
    record = json.loads(entry.record)
    assert record["state"] == "SCORED" and record["outcome"] == "SUBMITTED"
    assert record["scores"] == {"objective": 82, "composite": 82}
    assert record["judges"]["objective"]["container_id"] == "jsb_1"
    assert record["sandbox"]["launch_type"] == "WARM" and record["sandbox"]["exit_code"] == 0
    assert record["sandbox"]["killed_by"] == {"signal": "SIGTERM", "reason": "submit"}
    assert record["sandbox"]["peak_cpu_percent"] == 87.5
    assert record["workspace"]["diff_digest"] == "sha256:" + "d" * 64
    assert record["agent_feedback"] is None and record["flags"] == []


async def test_the_claim_carries_the_challenge(bench: Bench, challenge: Path) -> None:
    seen: list[daemon_pb.ClaimRequest] = []
    node = bench.nodes["node-1"]
    claim = node.claim

    async def spy(request: daemon_pb.ClaimRequest) -> daemon_pb.SandboxAttempt:
        seen.append(request)
        return await claim(request)

    node.claim = spy  # type: ignore[method-assign]
    await bench.start()
    attempt = await started(bench, challenge)
    request = seen[-1]
    assert (request.stack, request.challenge_id, request.agent_id) == ("python311", "fix-it", "agent")
    assert request.resources.memory_bytes == 512 * 1024**2 and request.resources.disk_bytes == 0
    assert dict(request.environment) == {"MODE": "test"}
    assert request.time_limit_duration.ToSeconds() == 60
    assert {r.request_id for r in seen} == {request.request_id} and request.fence == attempt.fence


async def test_a_closed_network_file_is_claimed_as_no_network_and_explained_in_the_record(
    bench: Bench, challenge: Path
) -> None:
    (challenge / "network").mkdir()
    (challenge / "network" / "compose.yaml").write_text("services:\n  agent: {image: x, network_mode: none}\n")
    with (challenge / "challenge.yaml").open("a") as file:
        file.write("network: compose.yaml\nisolation: {level: strict}\n")
    seen: list[daemon_pb.ClaimRequest] = []
    bench.nodes["node-1"].on_claim = seen.append
    await bench.start()
    attempt = await started(bench, challenge)
    assert {request.network_digest for request in seen} == {""}
    bench.nodes["node-1"].lose(attempt.attempt_id)
    ended = await bench.until(attempt.attempt_id, over)
    entry = bench.ledger.get(ended.attempt_id)
    assert entry is not None
    network = json.loads(entry.record)["network"]
    assert network["digest"].startswith("sha256:")
    assert network["services"]["agent"]["internet"] == "none"
    assert {grant["file"] for grant in network["services"]["agent"]["granted_by"]} <= {
        "network/compose.yaml", "challenge.yaml", "(cluster)",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("compose", "codes"),
    [
        ("services: {a: {network_mode: bridge}}", ["R27"]),
        ("services: {a: {image: x}, b: {image: y}}", ["R27", "R27"]),
        ("services: {a: {network_mode: host, ports: ['80:80']}}", ["R1", "R10"]),
    ],
)
async def test_what_cannot_be_enforced_is_refused_at_upload_and_leaves_nothing(
    bench: Bench, challenge: Path, compose: str, codes: list[str]
) -> None:
    (challenge / "network").mkdir()
    (challenge / "network" / "compose.yaml").write_text(compose)
    with (challenge / "challenge.yaml").open("a") as file:
        file.write("network: compose.yaml\n")
    with pytest.raises(FormatError) as caught:
        await bench.upload(challenge)
    assert [problem.message.split()[0] for problem in caught.value.problems] == codes
    assert {problem.file for problem in caught.value.problems} == {"network/compose.yaml:1"}
    assert all(problem.remedy for problem in caught.value.problems)
    assert list(bench.config.challenges.iterdir()) == []


async def test_memory_feedback_names_the_limit_that_the_node_enforced(bench: Bench, challenge: Path) -> None:
    await bench.start()
    attempt = await started(bench, challenge)
    bench.nodes["node-1"].end(
        attempt.attempt_id, daemon_pb.END_CAUSE_SANDBOX_DIED, container_exit_code=137, oom_kill_count=1
    )
    await bench.judge()
    ended = await bench.until(attempt.attempt_id, over)
    assert (ended.outcome, ended.fault) == (Outcome.OOM_KILLED, Fault.AGENT)
    assert ended.agent_feedback == "Your submission exceeded the 512MB memory limit."


async def test_the_final_state_shows_only_with_the_record_kept(bench: Bench, challenge: Path) -> None:
    await bench.start()
    attempt = await started(bench, challenge)
    shown: list[tuple[State, bool]] = []
    with bench.core.hub.subscribe(attempt.attempt_id) as changes:
        bench.nodes["node-1"].lose(attempt.attempt_id)
        async with asyncio.timeout(10):
            while not (seen := await changes.get()).over:
                shown.append((seen.public_state, bench.ledger.get(attempt.attempt_id) is not None))
    assert (State.JUDGING, False) in shown and State.VOIDED not in [state for state, _ in shown]
    assert seen.public_state is State.VOIDED
    assert bench.ledger.get(attempt.attempt_id) is not None


async def test_one_agent_has_one_sandbox_and_a_void_gives_the_place_back(bench: Bench, challenge: Path) -> None:
    await bench.start()
    first = await started(bench, challenge)
    second = await bench.submit(first.challenge_digest, "agent")
    other = await bench.submit(first.challenge_digest, "other")
    await bench.until(other.attempt_id, running)
    assert (await bench.core.attempts.get(second.attempt_id)).state is State.QUEUED
    bench.nodes["node-1"].lose(first.attempt_id)
    await bench.until(second.attempt_id, running)
    voided = await bench.until(first.attempt_id, over)
    assert (voided.state, voided.outcome, voided.fault) == (State.VOIDED, Outcome.VOIDED, Fault.PLATFORM)


async def test_bouts_go_first(make_bench: MakeBench, challenge: Path) -> None:
    bench = make_bench(nodes={"node-1": FakeNode("node-1", capacity=1)})
    order: list[str] = []
    bench.nodes["node-1"].on_running = lambda held: order.append(held.attempt_id)
    digest = await bench.upload(challenge)
    names = {}
    for priority in (Priority.RERUN, Priority.PRACTICE, Priority.BOUT):
        names[priority] = (await bench.submit(digest, f"agent-{priority}", priority)).attempt_id
    await bench.start()
    for priority in (Priority.BOUT, Priority.PRACTICE, Priority.RERUN):
        await bench.until(names[priority], running)
        bench.nodes["node-1"].lose(names[priority])
    assert order == [names[Priority.BOUT], names[Priority.PRACTICE], names[Priority.RERUN]]


async def test_a_full_queue_says_so(make_bench: MakeBench, challenge: Path) -> None:
    bench = make_bench(limits=Limits(max_queue_depth=1))
    digest = await bench.upload(challenge)
    await bench.submit(digest, "a")
    with pytest.raises(QueueFull):
        await bench.submit(digest, "b")


async def test_waiting_too_long_fails_by_the_steady_clock_only(make_bench: MakeBench, challenge: Path) -> None:
    clock = ManualClock()
    bench = make_bench(nodes={}, clock=clock)
    await bench.start()
    attempt = await bench.submit(await bench.upload(challenge), "agent")
    clock.wall += 3_600 * 10**9
    clock.now += 299
    assert await bench.core.queue.expire() == []
    clock.now += 2
    ended = await bench.until(attempt.attempt_id, over)
    assert (ended.state, ended.outcome, ended.fault) == (State.FAILED, Outcome.VOIDED, Fault.PLATFORM)
    assert ended.reason == "not started within 300 seconds"
    entry = bench.ledger.get(attempt.attempt_id)
    assert entry is not None and json.loads(entry.record)["sandbox"]["exit_reason"] == "voided"


@pytest.mark.parametrize(
    "refusal",
    [
        errors.unavailable("POOL_EXHAUSTED", "no warm entry"),
        errors.exhausted("NODE_FULL", "no room", "node"),
        errors.internal(),
    ],
    ids=lambda refusal: refusal.reason,
)
async def test_a_refusing_node_is_left_for_the_next(make_bench: MakeBench, challenge: Path, refusal: WireError) -> None:
    bench = make_bench(nodes={"node-1": FakeNode("node-1"), "node-2": FakeNode("node-2")})
    bench.nodes["node-1"].refuse_next(refusal)
    await bench.start()
    attempt = await started(bench, challenge)
    assert (attempt.node_id, attempt.fence) == ("node-2", 2)
    assert bench.nodes["node-1"].made[attempt.attempt_id] == 0


async def test_a_claim_the_node_calls_wrong_ends_failed(bench: Bench, challenge: Path) -> None:
    bench.nodes["node-1"].refuse_next(errors.invalid("STACK_UNKNOWN", "no stack 'python311' here"))
    await bench.start()
    attempt = await bench.submit(await bench.upload(challenge), "agent")
    ended = await bench.until(attempt.attempt_id, over)
    assert (ended.state, ended.outcome) == (State.FAILED, Outcome.VOIDED)
    assert "no stack 'python311' here" in (ended.reason or "")


async def test_a_node_that_keeps_failing_is_not_asked_for_ever(make_bench: MakeBench, challenge: Path) -> None:
    clock = ManualClock()
    bench = make_bench(clock=clock)
    node = bench.nodes["node-1"]
    node.refuse_next(*(errors.internal() for _ in range(9)))
    await bench.start()
    attempt = await bench.submit(await bench.upload(challenge), "agent")
    for tries in range(1, 5):
        await bench.until(attempt.attempt_id, lambda a, n=tries: a.state is State.QUEUED and a.claim_tries == n)
        clock.advance(3)
    ended = await bench.until(attempt.attempt_id, over)
    assert (ended.state, ended.outcome, node.count("claim")) == (State.FAILED, Outcome.VOIDED, 5)


async def test_an_attempt_whose_sandbox_cannot_be_made_holds_up_nobody(bench: Bench, challenge: Path) -> None:
    node = bench.nodes["node-1"]
    node.refuse_next(errors.unavailable("COLD_START_FAILED", "container: minimum memory limit allowed is 6MB"))
    await bench.start()
    digest = await bench.upload(challenge)
    impossible = await bench.submit(digest, "agent")
    await bench.until(impossible.attempt_id, lambda a: node.count("claim") > 0)
    other = await bench.submit(digest, "somebody-else")
    await bench.until(other.attempt_id, running)
    again = await bench.until(impossible.attempt_id, running)
    assert again.claim_tries == 1


async def test_a_draining_node_gets_nothing_new(bench: Bench, challenge: Path) -> None:
    await bench.start()
    digest = await bench.upload(challenge)
    await bench.core.nodes.set_draining(request_key(), "node-1", True)
    attempt = await bench.submit(digest, "agent")
    await bench.core.dispatcher.dispatch()
    assert (await bench.core.attempts.get(attempt.attempt_id)).state is State.QUEUED
    await bench.core.nodes.set_draining(request_key("undrain"), "node-1", False)
    await bench.until(attempt.attempt_id, running)


# ---- nodes that vanish, come back, forget ------------------------------------------------------------------------


async def test_a_cut_stream_alone_voids_nothing(bench: Bench, challenge: Path) -> None:
    await bench.start()
    attempt = await started(bench, challenge)
    node = bench.nodes["node-1"]
    node.cut_streams()
    await bench.core.observer.tick()
    node.end(attempt.attempt_id)  # perhaps while nobody listens
    await bench.judge()
    assert (await bench.until(attempt.attempt_id, over)).outcome is Outcome.SUBMITTED


async def test_an_attempt_its_node_forgot_is_void(bench: Bench, challenge: Path) -> None:
    await bench.start()
    attempt = await started(bench, challenge)
    node = bench.nodes["node-1"]
    node.forget(attempt.attempt_id)
    node.cut_streams()
    ended = await bench.until(attempt.attempt_id, over)
    assert (ended.state, ended.fault) == (State.VOIDED, Fault.PLATFORM)
    assert "does not know the attempt" in (ended.reason or "")


async def test_a_silent_node_loses_its_attempts_after_lease_and_tick(make_bench: MakeBench, challenge: Path) -> None:
    clock = ManualClock()
    bench = make_bench(clock=clock)
    await bench.start()
    attempt = await started(bench, challenge)
    await until_connected(bench)
    bench.daemons["node-1"].down = True
    bench.nodes["node-1"].cut_streams()
    await until_connected(bench, up=False)
    clock.advance(30)  # one lease, but not the tick
    await bench.core.observer.tick()
    assert (await bench.core.attempts.get(attempt.attempt_id)).state is State.RUNNING
    clock.advance(0.1)
    await bench.core.observer.tick()
    ended = await bench.until(attempt.attempt_id, over)
    assert (ended.state, ended.fault) == (State.VOIDED, Fault.PLATFORM)
    assert "was silent for 30 seconds" in (ended.reason or "")


async def test_a_late_heartbeat_of_a_node_whose_stream_lives_is_not_death(
    make_bench: MakeBench, challenge: Path
) -> None:
    clock = ManualClock()
    bench = make_bench(clock=clock)
    await bench.start()
    attempt = await started(bench, challenge)
    await until_connected(bench)
    clock.advance(500)
    # The attempt's own deadline is not the matter here.
    await bench.core.attempts.change(attempt.attempt_id, {}, {"started_mark": clock.steady()})
    await bench.core.observer.tick()
    assert (await bench.core.attempts.get(attempt.attempt_id)).state is State.RUNNING
    assert bench.core.nodes.stale(bench.core.nodes.get("node-1"))


async def test_heartbeats_of_a_node_whose_stream_is_cut_keep_it_alive(make_bench: MakeBench, challenge: Path) -> None:
    clock = ManualClock()
    bench = make_bench(clock=clock)
    await bench.start()
    attempt = await started(bench, challenge)
    await until_connected(bench)
    bench.daemons["node-1"].down = True
    bench.nodes["node-1"].cut_streams()
    await until_connected(bench, up=False)
    for _ in range(4):
        clock.advance(20)
        await bench.heartbeat("node-1")
        await bench.core.observer.tick()
    assert (await bench.core.attempts.get(attempt.attempt_id)).state is State.RUNNING


async def test_a_node_that_comes_back_with_a_voided_attempt_is_told_to_release_it(
    make_bench: MakeBench, challenge: Path
) -> None:
    clock = ManualClock()
    bench = make_bench(clock=clock)
    await bench.start()
    attempt = await started(bench, challenge)
    await until_connected(bench)
    node, daemon = bench.nodes["node-1"], bench.daemons["node-1"]
    daemon.down = True
    node.cut_streams()
    await until_connected(bench, up=False)
    clock.advance(31)
    await bench.until(attempt.attempt_id, over)
    assert node.live[attempt.attempt_id] == 1
    daemon.down = False
    await node.until(lambda: node.live[attempt.attempt_id] == 0)
    assert (await bench.core.attempts.get(attempt.attempt_id)).state is State.VOIDED


async def test_a_sandbox_nobody_knows_is_released(bench: Bench) -> None:
    node = bench.nodes["node-1"]
    node.attempts["att_ghost"] = daemon_pb.SandboxAttempt(
        attempt_id="att_ghost", fence=7, state=daemon_pb.SANDBOX_STATE_RUNNING
    )
    node.live["att_ghost"] = 1
    await bench.start()
    await node.until(lambda: node.live["att_ghost"] == 0)
    assert ("release", "att_ghost", 7) in node.calls


async def test_a_lost_claims_sandbox_becomes_a_stray_and_never_runs_beside_the_second(
    make_bench: MakeBench, challenge: Path
) -> None:
    clock = ManualClock()
    bench = make_bench(nodes={"node-1": FakeNode("node-1"), "node-2": FakeNode("node-2")}, clock=clock)
    first, second = bench.nodes["node-1"], bench.nodes["node-2"]

    async def vanish_after_making(request: daemon_pb.ClaimRequest) -> daemon_pb.SandboxAttempt:
        await original(request)
        clock.advance(6)  # patience ends
        raise WireError(errors.unavailable("", "").code, "", "connection reset")

    original, first.claim = first.claim, vanish_after_making  # type: ignore[method-assign]
    first.need_challenge = False
    await bench.start()
    attempt = await started(bench, challenge)
    assert (attempt.node_id, attempt.fence) == ("node-2", 2)
    await first.until(lambda: first.live[attempt.attempt_id] == 0)
    assert second.live[attempt.attempt_id] == 1


async def test_an_end_that_never_comes_is_given_up(make_bench: MakeBench, challenge: Path) -> None:
    clock = ManualClock()
    bench = make_bench(clock=clock)
    await bench.start()
    attempt = await started(bench, challenge)
    clock.advance(60 + 30 + 600)
    await bench.core.observer.tick()
    assert (await bench.core.attempts.get(attempt.attempt_id)).state is State.RUNNING
    clock.advance(1)
    ended = await bench.until(attempt.attempt_id, over)
    assert ended.state is State.VOIDED and "no end was reported" in (ended.reason or "")


# ---- cancelling --------------------------------------------------------------------------------------------------


async def test_cancel_while_queued(make_bench: MakeBench, challenge: Path) -> None:
    bench = make_bench(nodes={})
    await bench.start()
    attempt = await bench.submit(await bench.upload(challenge), "agent")
    cancelled = await bench.core.cancelling.cancel(request_key(), attempt.attempt_id)
    assert (cancelled.state, cancelled.outcome, cancelled.fault) == (State.FAILED, Outcome.CANCELLED, Fault.NONE)
    await bench.until(attempt.attempt_id, over)
    assert bench.ledger.get(attempt.attempt_id) is not None


async def test_cancel_while_starting(bench: Bench, challenge: Path) -> None:
    node = bench.nodes["node-1"]
    node.pause()
    await bench.start()
    attempt = await bench.submit(await bench.upload(challenge), "agent")
    await node.until(lambda: node.count("claim") == 1)
    assert (await bench.core.cancelling.cancel(request_key(), attempt.attempt_id)).state is State.STARTING
    node.resume()
    ended = await bench.until(attempt.attempt_id, over)
    assert (ended.state, ended.outcome) == (State.SCORED, Outcome.CANCELLED)
    await node.until(lambda: node.live[attempt.attempt_id] == 0)


async def test_cancel_while_starting_on_a_node_that_refuses(bench: Bench, challenge: Path) -> None:
    node = bench.nodes["node-1"]
    node.refuse_next(errors.unavailable("DRAINING", "no"))
    node.pause()
    await bench.start()
    attempt = await bench.submit(await bench.upload(challenge), "agent")
    await node.until(lambda: node.count("claim") == 1)
    await bench.core.cancelling.cancel(request_key(), attempt.attempt_id)
    node.resume()
    ended = await bench.until(attempt.attempt_id, over)
    assert (ended.state, ended.outcome) == (State.FAILED, Outcome.CANCELLED)
    assert node.made[attempt.attempt_id] == 0


async def test_cancel_while_running_is_final_without_scores(bench: Bench, challenge: Path) -> None:
    await bench.start()
    attempt = await started(bench, challenge)
    key = request_key()
    for _ in range(3):
        await bench.core.cancelling.cancel(key, attempt.attempt_id)
    ended = await bench.until(attempt.attempt_id, over)
    assert (ended.state, ended.outcome, ended.fault) == (State.SCORED, Outcome.CANCELLED, Fault.NONE)
    entry = bench.ledger.get(attempt.attempt_id)
    assert entry is not None
    record = json.loads(entry.record)
    assert (record["scores"], record["judges"], record["sandbox"]["exit_reason"]) == ({}, {}, "cancelled")
    assert await bench.core.judging.lease("worker", 0) is None


async def test_cancel_reaches_a_node_that_was_away(bench: Bench, challenge: Path) -> None:
    await bench.start()
    attempt = await started(bench, challenge)
    node, daemon = bench.nodes["node-1"], bench.daemons["node-1"]
    daemon.down = True
    await bench.core.cancelling.cancel(request_key(), attempt.attempt_id)
    daemon.down = False
    assert (await bench.until(attempt.attempt_id, over)).outcome is Outcome.CANCELLED
    assert node.count("end") >= 1


@pytest.mark.parametrize("stage", ["judging", "scored", "voided"])
async def test_cancel_after_the_end_changes_nothing(bench: Bench, challenge: Path, stage: str) -> None:
    await bench.start()
    attempt = await started(bench, challenge)
    node = bench.nodes["node-1"]
    if stage == "voided":
        node.lose(attempt.attempt_id)
        await bench.until(attempt.attempt_id, over)
    else:
        node.end(attempt.attempt_id)
        await bench.until(attempt.attempt_id, lambda a: a.state is State.JUDGING)
    if stage == "scored":
        await bench.judge()
        await bench.until(attempt.attempt_id, over)
    before = await bench.core.attempts.get(attempt.attempt_id)
    after = await bench.core.cancelling.cancel(request_key(), attempt.attempt_id)
    # Only the release may go on meanwhile.
    assert replace(after, released=before.released) == before


# ---- judging -----------------------------------------------------------------------------------------------------


async def to_judging(bench: Bench, challenge: Path) -> Attempt:
    await bench.start()
    attempt = await started(bench, challenge)
    bench.nodes["node-1"].end(attempt.attempt_id)
    return await bench.until(attempt.attempt_id, lambda a: a.state is State.JUDGING)


RESULT = judging_pb.JudgeResult(judge="objective", score=70.0, documents={"test_results.json": b"{}"})


async def test_a_vanished_workers_lease_is_given_out_again_and_its_late_delivery_refused(
    make_bench: MakeBench, challenge: Path
) -> None:
    clock = ManualClock()
    bench = make_bench(clock=clock)
    attempt = await to_judging(bench, challenge)
    judging = bench.core.judging
    first = await judging.lease("w1", 0)
    assert first is not None and first.judging_lease_id is not None
    assert await judging.lease("w2", 0) is None
    clock.advance(59)
    await judging.renew(first.judging_lease_id)
    clock.advance(59)
    assert await judging.lease("w2", 0) is None
    clock.advance(2)
    second = await judging.lease("w2", 0)
    assert second is not None and second.judging_lease_id is not None and second.judging_tries == 2
    for call in (judging.renew(first.judging_lease_id), judging.complete(first.judging_lease_id, [RESULT], "")):
        with pytest.raises(LeaseLost):
            await call
    await judging.complete(second.judging_lease_id, [RESULT], "")
    await judging.complete(second.judging_lease_id, [RESULT], "")  # its answer was lost
    ended = await bench.until(attempt.attempt_id, over)
    assert ended.state is State.SCORED
    assert bench.store.documents(attempt.attempt_id) == {("objective", "test_results.json"): b"{}"}


async def test_a_judge_that_fails_three_times_voids_and_is_never_a_zero(make_bench: MakeBench, challenge: Path) -> None:
    clock = ManualClock()
    bench = make_bench(clock=clock)
    attempt = await to_judging(bench, challenge)
    for tries in range(3):
        assert (await bench.core.attempts.get(attempt.attempt_id)).judging_tries == tries
        leased = await bench.core.judging.lease("w", 0)
        assert leased is not None and leased.judging_lease_id is not None
        await bench.core.judging.complete(leased.judging_lease_id, [], "no container")
        clock.advance(1)
    ended = await bench.until(attempt.attempt_id, over)
    assert (ended.state, ended.outcome, ended.fault) == (State.VOIDED, Outcome.VOIDED, Fault.PLATFORM)
    assert "no container" in (ended.reason or "") and "SUBMITTED" in (ended.reason or "")
    entry = bench.ledger.get(attempt.attempt_id)
    assert entry is not None and json.loads(entry.record)["scores"] == {}


async def test_three_workers_that_all_vanish_void_too(make_bench: MakeBench, challenge: Path) -> None:
    clock = ManualClock()
    bench = make_bench(clock=clock)
    attempt = await to_judging(bench, challenge)
    for _ in range(3):
        assert await bench.core.judging.lease("w", 0) is not None
        clock.advance(61)
    assert await bench.core.judging.lease("w", 0) is None
    await bench.core.judging.sweep()
    assert (await bench.until(attempt.attempt_id, over)).state is State.VOIDED


@pytest.mark.parametrize(
    "results",
    [
        [judging_pb.JudgeResult(judge="objective")],
        [judging_pb.JudgeResult(judge="objective", score=101)],
        [judging_pb.JudgeResult(judge="objective", score=float("nan"))],
        [judging_pb.JudgeResult(judge="objective", verdict="pass")],
        [judging_pb.JudgeResult(judge="integrity", score=50)],
        [judging_pb.JudgeResult(judge="integrity", verdict="maybe")],
        [judging_pb.JudgeResult(judge="objective", score=1, verdict="pass")],
        [judging_pb.JudgeResult(judge="vibes", score=1)],
        [RESULT, RESULT],
    ],
)
async def test_results_that_make_no_sense_are_refused_and_the_lease_goes_on(
    bench: Bench, challenge: Path, results: list[judging_pb.JudgeResult]
) -> None:
    await to_judging(bench, challenge)
    leased = await bench.core.judging.lease("w", 0)
    assert leased is not None and leased.judging_lease_id is not None
    with pytest.raises(BadInput):
        await bench.core.judging.complete(leased.judging_lease_id, results, "")
    await bench.core.judging.renew(leased.judging_lease_id)


async def test_a_challenge_without_any_test_is_scored_without_scores(bench: Bench, challenge: Path) -> None:
    attempt = await to_judging(bench, challenge)
    leased = await bench.core.judging.lease("w", 0)
    assert leased is not None and leased.judging_lease_id is not None
    await bench.core.judging.complete(leased.judging_lease_id, [], "")
    ended = await bench.until(attempt.attempt_id, over)
    assert (ended.state, ended.outcome) == (State.SCORED, Outcome.SUBMITTED)
    entry = bench.ledger.get(attempt.attempt_id)
    assert entry is not None and json.loads(entry.record)["scores"] == {}


@pytest.mark.parametrize("lease", ["", "lea_unknown"])
async def test_a_lease_that_never_was(bench: Bench, lease: str) -> None:
    with pytest.raises(LeaseLost):
        await bench.core.judging.renew(lease)


async def test_a_waiting_worker_gets_work_when_it_comes(bench: Bench, challenge: Path) -> None:
    await bench.start()
    waiting = asyncio.create_task(bench.core.judging.lease("w", 10))
    attempt = await started(bench, challenge)
    bench.nodes["node-1"].end(attempt.attempt_id)
    leased = await waiting
    assert leased is not None and leased.attempt_id == attempt.attempt_id


# ---- tokens ------------------------------------------------------------------------------------------------------


async def test_tokens_open_the_present_lease_only(bench: Bench, challenge: Path) -> None:
    await bench.start()
    attempt = await started(bench, challenge)
    gateway = bench.core.gateway
    token, endpoint = await gateway.issue(attempt.attempt_id)
    assert verify(bytes(range(32)), token) == (attempt.attempt_id, attempt.fence)
    assert endpoint == "unix:///agents/node-1"
    assert (await gateway.session(token, attempt.attempt_id)).attempt_id == attempt.attempt_id
    other = await bench.submit(attempt.challenge_digest, "other")
    for bad_token, name in ((token, other.attempt_id), (token, "att_unknown"), (token[:-1] + "x", attempt.attempt_id)):
        with pytest.raises(WireError, match="token"):
            await gateway.session(bad_token, name)
    await bench.core.attempts.change(attempt.attempt_id, {}, {"fence": 2})
    with pytest.raises(WireError, match="token"):
        await gateway.session(token, attempt.attempt_id)


async def test_only_a_running_attempt_has_tokens(make_bench: MakeBench, challenge: Path) -> None:
    bench = make_bench(nodes={})
    attempt = await bench.submit(await bench.upload(challenge), "agent")
    with pytest.raises(NotLive):
        await bench.core.gateway.issue(attempt.attempt_id)


# ---- entering ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", ["", "a b", "../x", "a" * 129, "ä"])
async def test_agent_ids_that_are_refused(bench: Bench, challenge: Path, agent: str) -> None:
    digest = await bench.upload(challenge)
    with pytest.raises(BadInput, match="agent_id"):
        await bench.submit(digest, agent)


async def test_superseding_keeps_agent_and_challenge(bench: Bench, challenge: Path, tmp_path: Path) -> None:
    digest = await bench.upload(challenge)
    other = await bench.upload(challenge_directory(tmp_path / "o", "other"))
    before = await bench.submit(digest, "agent")

    async def rerun(challenge_digest: str, agent_id: str) -> Attempt:
        return await bench.core.queue.submit(
            request_key(),
            challenge_digest=challenge_digest,
            agent_id=agent_id,
            priority=Priority.RERUN,
            supersedes=before.attempt_id,
        )

    assert (await rerun(digest, "agent")).supersedes == before.attempt_id
    for digest_, agent in ((digest, "else"), (other, "agent")):
        with pytest.raises(BadInput, match="supersedes"):
            await rerun(digest_, agent)


async def until_connected(bench: Bench, *, up: bool = True, name: str = "node-1") -> None:
    """Wait until the scheduler's stream to a node is open, or gone."""
    async with asyncio.timeout(10):
        while bench.core.nodes.get(name).connected is not up:  # noqa: ASYNC110 - the registry has no event for it
            await asyncio.sleep(0)


async def test_a_stack_that_no_node_offers_is_refused_at_submission(bench: Bench, challenge: Path) -> None:
    bench.stacks = ("cobol60",)
    await bench.start()
    digest = await bench.upload(challenge)
    with pytest.raises(BadInput, match=r"python311.*cobol60"):
        await bench.submit(digest, "agent")
    bench.stacks = ("cobol60", "python311")
    await bench.heartbeat("node-1")
    assert (await bench.submit(digest, "agent")).state in (State.QUEUED, State.STARTING, State.RUNNING)
