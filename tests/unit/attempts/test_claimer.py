"""A claim that fails half-way gives everything back, and one whose sandbox dies under it still ends."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from daemon.attempts.calm import Calm
from daemon.attempts.claims import Claimer
from daemon.attempts.journal import Journal
from daemon.attempts.model import ChallengeMissing, ClaimRefused, ClaimSpec, State
from daemon.attempts.registry import Registry
from daemon.attempts.stacks import Stack, Stacks
from daemon.pool.factory import EntryFailed
from daemon.pool.template import Template
from daemon.runtime.errors import CreateFailed, RuntimeTimeout, RuntimeUnavailable
from daemon.runtime.types import Resources

MIB = 1024**2
LIMITS = Resources(256 * MIB, 1000, 64 * MIB, 128, 32 * MIB)
TEMPLATE = Template("python311", "sha256:i", LIMITS, "sha256:p", "runsc", "sha256:r")


def spec(attempt_id: str = "att_1", **more: Any) -> ClaimSpec:
    return ClaimSpec(attempt_id, 1, "sha256:c", "chal", "agent", "python311", 60.0, **more)


class Entry(SimpleNamespace):
    """A warm entry that accepts its assignment."""

    def __init__(self, number: int) -> None:
        super().__init__(
            entry_id=f"sbx_{number}", container_id=f"c{number}", image_digest="sha256:i", slot="slot", link=self
        )

    async def assign(self, environment: Any) -> None:
        return None


class Ports:
    """Every port a claim touches, as little of each as a claim needs; `broken` names the one that fails."""

    def __init__(self, entries: int = 1, broken: str = "") -> None:
        self.ready = [Entry(number) for number in range(entries)]
        self.retired: list[str] = []
        self.abandoned: list[str] = []
        self.broken = broken

    def take(self, template: Template) -> Entry | None:
        return self.ready.pop() if self.ready else None

    def retire(self, entry: Entry) -> None:
        self.retired.append(entry.entry_id)

    async def has_template(self, digest: str) -> bool:
        return digest == "sha256:c"

    async def assign(self, slot: Any, digest: str) -> Any:
        return SimpleNamespace(entry_id="x")

    async def bind(self, container_id: str, attempt_id: str) -> None:
        return None

    async def open(self, attempt_id: str) -> None:
        if self.broken == "telemetry":
            raise OSError("no space for the spool")

    async def abandon(self, attempt_id: str) -> None:
        self.abandoned.append(attempt_id)

    def begin(self, attempt_id: str, slot: Any, container_id: str) -> None:
        return None

    async def forget(self, attempt_id: str) -> None:
        return None

    async def rename(self, container_id: str, name: str) -> None:
        return None


@pytest.fixture
def node(tmp_path):
    with ThreadPoolExecutor(1) as executor:

        def make(ports: Ports) -> Any:
            made = SimpleNamespace(
                **dict.fromkeys(("pools", "workspace", "telemetry", "fswatch", "tracing", "runtime"), ports),
                stacks=Stacks({"python311": Stack(TEMPLATE, LIMITS, 1)}),
                registry=Registry(),
                calm=Calm(),
                journal=Journal(tmp_path / "j.db"),
                capacity=2,
                memory_budget_bytes=600 * MIB,
                clock=SimpleNamespace(boot_id="b", boottime_ns=lambda: 1, wall_ns=lambda: 2),
            )
            made.held = lambda: sum(a.entry is not None for a in made.registry)

            async def blocking(work: Any, *arguments: Any) -> Any:
                return await asyncio.get_running_loop().run_in_executor(executor, work, *arguments)

            async def keep(attempt: Any) -> None:
                await blocking(made.journal.put, attempt.facts)

            made.blocking, made.keep = blocking, keep
            return made

        yield make


async def test_a_claim_is_journalled_running_and_answered_again_the_same(node):
    made = node(Ports())
    claimer = Claimer(made, lambda attempt: None)
    first, again = await asyncio.gather(claimer.claim(spec()), claimer.claim(spec()))
    assert first is again
    assert (first.facts.state, first.facts.launch_type) == (State.RUNNING, "WARM")
    assert [facts.state for facts in made.journal.load()] == [State.RUNNING]


async def test_a_claim_that_fails_after_its_sandbox_was_taken_gives_it_back(node):
    ports = Ports(broken="telemetry")
    made = node(ports)
    with pytest.raises(OSError, match="no space"):
        await Claimer(made, lambda attempt: None).claim(spec())
    assert (ports.retired, ports.abandoned) == (["sbx_0"], ["att_1"])
    assert (list(made.registry), made.journal.load()) == ([], [])


@pytest.mark.parametrize(
    ("more", "draining", "reason"),
    [({}, True, "NODE_DRAINING"), ({"warm_only": True}, False, "POOL_EXHAUSTED")],
)
async def test_refusals_say_why(node, more, draining, reason):
    claimer = Claimer(node(Ports(entries=0)), lambda attempt: None)
    claimer.draining = draining
    with pytest.raises(ClaimRefused) as refused:
        await claimer.claim(spec(**more))
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (RuntimeUnavailable("no engine"), "RUNTIME_UNAVAILABLE"),
        (RuntimeTimeout("create", 30), "RUNTIME_UNAVAILABLE"),
        (CreateFailed("minimum memory limit allowed is 6MB"), "COLD_START_FAILED"),
        (None, "COLD_START_FAILED"),
    ],
)
async def test_an_engine_that_is_away_is_told_from_one_that_refuses(node, cause, reason):
    ports = Ports(entries=0)

    async def cold(template):
        raise EntryFailed("container", "it failed") from cause

    ports.cold = cold
    with pytest.raises(ClaimRefused) as refused:
        await Claimer(node(ports), lambda attempt: None).claim(spec())
    assert refused.value.reason == reason


async def test_a_full_node_refuses(node):
    claimer = Claimer(node(Ports(entries=3)), lambda attempt: None)
    await claimer.claim(spec("att_1"))
    await claimer.claim(spec("att_2"))
    with pytest.raises(ClaimRefused) as refused:
        await claimer.claim(spec("att_3"))
    assert refused.value.reason == "NODE_FULL"


async def test_an_unknown_challenge_is_asked_for(node):
    with pytest.raises(ChallengeMissing):
        bad = ClaimSpec("att_1", 1, "sha256:other", "chal", "agent", "python311", 60.0)
        await Claimer(node(Ports()), lambda attempt: None).claim(bad)
