"""What a sandbox's kernel wrote when it panicked outlives the container, in the evidence and in the daemon's log."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from structlog.testing import capture_logs

from daemon.attempts.ending import PANIC_EXCERPT_BYTES, keep_panic
from daemon.attempts.model import AttemptFacts, ClaimSpec
from daemon.runtime.fake import FakeRuntime
from tests.support.runtime_rig import FakeRig


async def died_with(panic: bytes) -> tuple[AttemptFacts, list[MutableMapping[str, Any]]]:
    """Facts of an attempt whose sandbox died so, and what the daemon logged of it."""
    rig = FakeRig()
    created = await rig.create(rig.spec())
    assert isinstance(rig.runtime, FakeRuntime)
    rig.fake.die(created.container_id, 2, panic=panic)
    facts = AttemptFacts(ClaimSpec("att_1", 1, "sha256:c", "chal", "agent", "python311", 60.0))
    facts.container_id = created.container_id
    with capture_logs() as lines:
        await keep_panic(rig.runtime, facts)
    return facts, lines


async def test_its_beginning_is_kept_for_operators() -> None:
    facts, lines = await died_with(b"panic: no thread \xff\ngoroutine 1" + b"x" * 10_000)
    assert facts.evidence.runtime_panic is True
    kept = facts.evidence.runtime_panic_excerpt
    assert kept.startswith("panic: no thread \ufffd\ngoroutine 1x")
    assert len(kept) == PANIC_EXCERPT_BYTES
    (line,) = lines
    assert line == {
        "event": "sandbox_panicked",
        "log_level": "error",
        "attempt_id": "att_1",
        "container_id": facts.container_id,
        "excerpt": kept,
    }


async def test_an_end_without_one_is_none() -> None:
    facts, lines = await died_with(b"")
    assert (facts.evidence.runtime_panic, facts.evidence.runtime_panic_excerpt, lines) == (False, "", [])
