"""The daemon's facts of attempts: the journal, what a restart decides, templates of claims, watchers, request ids."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import fields, replace

import pytest
from gauntlet.daemon.v1 import daemon_service_pb2 as pb

from daemon.attempts.journal import Journal, JournalError
from daemon.attempts.live import LiveAttempt
from daemon.attempts.model import (
    AttemptFacts,
    Cause,
    ClaimSpec,
    DatabaseSpec,
    Evidence,
    ResourcesRefused,
    SentSignal,
    StaleFence,
    State,
    UnknownAttempt,
    UnknownStack,
    Usage,
    WorkspaceSummary,
)
from daemon.attempts.recovery import Decision, decide
from daemon.attempts.registry import Registry
from daemon.attempts.stacks import Stack, Stacks, environment, seed
from daemon.pool.template import Template
from daemon.runtime.types import ContainerState, Observation, Resources
from daemon.services import mapping
from daemon.services.requests import RequestLog
from wire import errors, request_ids

MIB = 1024**2
DEFAULTS = Resources(256 * MIB, 1000, 64 * MIB, 128, 32 * MIB)
POLICY = Resources(1024 * MIB, 2000, 512 * MIB, 256, 64 * MIB)
TEMPLATE = Template("python311", "sha256:i", DEFAULTS, "sha256:p", "runsc", "sha256:r")
SPEC = ClaimSpec(
    "att_1",
    3,
    "sha256:c",
    "chal",
    "agent",
    "python311",
    60.0,
    {"pids": 64},
    {"A": "1"},
    False,
    database=DatabaseSpec("postgres", "shop", 10.0),
)


def whole_facts() -> AttemptFacts:
    """Facts in which no field has its default."""
    evidence = Evidence(
        cause=Cause.SANDBOX_DIED,
        container_exit_code=137,
        oom_event=True,
        oom_kill_count=2,
        signals=[SentSignal("SIGTERM", "soft_timeout", 5)],
        runtime_panic=True,
        runtime_panic_excerpt="panic: x",
        pids_exhausted=True,
        memory_near_limit=True,
        disk_full=True,
        workspace_extracted=True,
        workspace_error="we",
        identity_confirmed=True,
        platform_fault="pf",
        submitted=True,
        time_limit_reached=True,
        blocked_syscalls=7,
        database_unavailable=True,
        suspect_files=2,
        disk_high=True,
        trace_incomplete=True,
        trace_dropped=3,
        telemetry_gaps=4,
    )
    default = Evidence()
    untouched = [f.name for f in fields(evidence) if getattr(evidence, f.name) == getattr(default, f.name)]
    assert untouched == [], "a new field needs a value here, or the round trips prove nothing of it"
    return AttemptFacts(
        spec=SPEC,
        state=State.ENDING,
        sandbox_id="sbx_1",
        entry_id="sbx_1",
        container_id="c" * 64,
        image_digest="sha256:i",
        launch_type="COLD",
        limits=DEFAULTS,
        boot_id="boot",
        started_boottime_ns=1,
        start_time_ns=2,
        end_time_ns=3,
        deadline_time_ns=4,
        evidence=evidence,
        usage=Usage(1, 2.5, 3, 4, 5),
        workspace=WorkspaceSummary("sha256:b", "sha256:d", 1, 2, 3, "sha256:m", "/a"),
    )


def test_the_journal_gives_back_exactly_what_it_was_given(tmp_path):
    facts = whole_facts()
    default = AttemptFacts(spec=SPEC)
    untouched = [f.name for f in fields(facts) if getattr(facts, f.name) == getattr(default, f.name)]
    assert untouched == ["spec"], "a new field needs a value here, or the round trip proves nothing of it"
    journal = Journal(tmp_path / "j.db")
    journal.put(facts)
    journal.close()
    assert Journal(tmp_path / "j.db").load() == [facts]


def test_the_report_carries_every_piece_of_evidence():
    evidence = whole_facts().evidence
    message = mapping.evidence(evidence)
    same = [f.name for f in fields(Evidence) if f.name not in ("cause", "signals")]
    assert {name: getattr(message, name) for name in same} == {name: getattr(evidence, name) for name in same}
    assert message.cause == pb.END_CAUSE_SANDBOX_DIED
    assert [(sent.name, sent.reason) for sent in message.signals] == [("SIGTERM", "soft_timeout")]


def test_the_journal_forgets_a_released_attempt_and_its_calls(tmp_path):
    journal = Journal(tmp_path / "j.db")
    journal.put(AttemptFacts(spec=SPEC))
    journal.begin_call("att_1", "exe_1", {"argv": ["ls"]})
    journal.begin_call("att_1", "exe_2", {"argv": ["id"]})
    journal.end_call("att_1", "exe_1")
    assert journal.open_calls("att_1") == {"exe_2": {"argv": ["id"]}}
    journal.drop("att_1")
    assert (journal.load(), journal.open_calls("att_1")) == ([], {})


def test_a_damaged_or_foreign_journal_is_refused_with_its_name(tmp_path):
    (tmp_path / "bad.db").write_bytes(b"no database" * 100)
    with pytest.raises(JournalError, match=r"bad\.db"):
        Journal(tmp_path / "bad.db")
    with sqlite3.connect(tmp_path / "new.db") as database:
        database.execute("PRAGMA user_version=99")
    database.close()
    with pytest.raises(JournalError, match="version 99"):
        Journal(tmp_path / "new.db")


def seen(state: ContainerState) -> Observation:
    return Observation("c", "n", state, None, False, 1, None, {}, "sha256:i")


@pytest.mark.parametrize(
    ("state", "container", "boot", "decision"),
    [
        (State.STARTING, ContainerState.RUNNING, "boot", Decision.FORGET),
        (State.STARTING, None, "other", Decision.FORGET),
        (State.RUNNING, ContainerState.RUNNING, "boot", Decision.ADOPT),
        (State.RUNNING, ContainerState.PAUSED, "boot", Decision.ADOPT),
        (State.RUNNING, ContainerState.EXITED, "boot", Decision.END),
        (State.RUNNING, None, "boot", Decision.END),
        (State.RUNNING, None, "other", Decision.LOST),
        (State.RUNNING, ContainerState.RUNNING, "other", Decision.LOST),
        (State.ENDING, ContainerState.RUNNING, "boot", Decision.END),
        (State.ENDING, None, "boot", Decision.END),
        (State.ENDING, None, "other", Decision.LOST),
        (State.FROZEN, None, "boot", Decision.KEEP),
        (State.FROZEN, None, "other", Decision.KEEP),
        (State.LOST, None, "boot", Decision.KEEP),
    ],
)
def test_what_a_restart_makes_of_an_attempt(state, container, boot, decision):
    facts = AttemptFacts(spec=SPEC, state=state, boot_id="boot")
    assert decide(facts, seen(container) if container else None, boot) is decision


def test_a_claim_gets_the_stacks_template_with_its_own_limits():
    stacks = Stacks({"python311": Stack(TEMPLATE, POLICY, 1)})
    assert stacks.template(replace(SPEC, resources={})).key == TEMPLATE.key
    larger = stacks.template(replace(SPEC, resources={"memory_bytes": 512 * MIB}))
    assert larger.resources == replace(DEFAULTS, memory_bytes=512 * MIB)
    assert larger.key != TEMPLATE.key
    with pytest.raises(ResourcesRefused) as refused:
        stacks.template(replace(SPEC, resources={"memory_bytes": 2048 * MIB}))
    assert refused.value.name == "memory_bytes"
    with pytest.raises(UnknownStack, match="python311"):
        stacks.template(replace(SPEC, stack="cobol"))


def test_the_seed_depends_on_the_challenge_alone():
    assert seed("a") == seed("a") != seed("b")
    plain = replace(SPEC, challenge_id="a", environment={"X": "1"}, database=None)
    assert environment(plain) == {"X": "1", "GAUNTLET_RANDOM_SEED": seed("a")}
    assert environment(plain, {"GAUNTLET_RANDOM_SEED": "0"})["GAUNTLET_RANDOM_SEED"] == seed("a")


def test_agent_and_judge_are_told_of_a_database_in_the_same_words():
    told = environment(replace(SPEC, database=DatabaseSpec("postgres", "shop", 10.0)))
    assert told["DATABASE_URL"] == "postgresql://agent@127.0.0.1:5432/shop"
    assert (told["PGHOST"], told["PGPORT"], told["PGUSER"], told["PGDATABASE"]) == ("/tmp", "5432", "agent", "shop")
    assert (
        environment(replace(SPEC, database=DatabaseSpec("redis", "x", 1.0)))["REDIS_URL"] == "redis://127.0.0.1:6379/0"
    )
    own = replace(SPEC, database=DatabaseSpec("postgres", "shop", 10.0), environment={"PGHOST": "127.0.0.1"})
    assert environment(own)["PGHOST"] == "127.0.0.1"


def test_an_older_lease_is_refused_and_a_newer_one_taken_over():
    attempt = LiveAttempt(AttemptFacts(spec=SPEC))
    attempt.fence(3)
    attempt.fence(5)
    assert attempt.facts.spec.fence == 5
    with pytest.raises(StaleFence):
        attempt.fence(4)


async def test_a_watcher_gets_the_latest_state_once():
    registry = Registry()
    one = LiveAttempt(AttemptFacts(spec=SPEC))
    two = LiveAttempt(AttemptFacts(spec=replace(SPEC, attempt_id="att_2")))
    with registry.watching() as watch:
        registry.add(one)
        registry.add(two)
        registry.changed(one)
        changes = watch.changes()
        async with asyncio.timeout(10):
            got = [await anext(changes), await anext(changes)]
    assert got == [two, one]
    registry.remove(one)
    assert registry.find("att_1") is None
    with pytest.raises(UnknownAttempt):
        registry.get("att_1")


def test_a_request_id_carries_one_body():
    log = RequestLog()
    request = pb.EndAttemptRequest(request_id=request_ids.new(), attempt_id="att_1")
    assert log.check("a", request) == log.check("a", request)
    request.attempt_id = "att_2"
    log.check("b", request)
    with pytest.raises(errors.WireError) as caught:
        log.check("a", request)
    assert caught.value.reason == "REQUEST_ID_REUSED"
    with pytest.raises(errors.WireError):
        log.check("a", pb.EndAttemptRequest(request_id="no uuid"))


def test_facts_reach_the_wire_whole():
    facts = whole_facts()
    facts.state = State.FROZEN
    message = mapping.attempt(facts)
    for part in (message, message.evidence, message.usage, message.workspace, message.limits):
        unset = {f.name for f in part.DESCRIPTOR.fields} - {f.name for f, _ in part.ListFields()}
        assert unset == set(), unset
    assert message.evidence.signals[0].reason == "soft_timeout"


@pytest.mark.parametrize("missing", ["attempt_id", "challenge_digest", "challenge_id", "stack", "fence"])
def test_an_incomplete_claim_is_refused_by_field(missing):
    request = pb.ClaimRequest(attempt_id="a", fence=1, challenge_digest="d", challenge_id="c", stack="s")
    request.time_limit_duration.seconds = 5
    assert mapping.claim_spec(request).time_limit_seconds == 5
    request.ClearField(missing)
    with pytest.raises(errors.WireError) as caught:
        mapping.claim_spec(request)
    assert missing in dict(caught.value.violations)
