"""From a claim to a template: what a challenge may change, and what a node refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daemon.attempts.model import ClaimSpec, NetworkUnenforceable, ResourcesRefused, UnknownStack
from daemon.attempts.stacks import Stack, Stacks
from daemon.pool.template import Template
from daemon.runtime.types import Resources
from daemon.services import mapping
from daemon.services.errors import translate
from formats.challenge import ChallengeSpec
from scheduler.claim import Answer, answer_to, claim_request
from tests.support.scheduling import new_attempt
from wire.errors import WireFailure

LIMITS = Resources(memory_bytes=256 << 20, cpu_millis=1000, disk_bytes=96 << 20, pids=128, tmp_bytes=32 << 20)
TEMPLATE = Template("python311", "sha256:i", LIMITS, "sha256:p", "gauntlet-runsc", "sha256:r")
STACKS = Stacks({"python311": Stack(TEMPLATE, replace(LIMITS, memory_bytes=1 << 30), 1)})
SPEC = ClaimSpec("att_1", 1, "sha256:c", "fix-it", "agent", "python311", 60.0)


def test_a_closed_policy_is_served_by_the_entries_that_are_warm() -> None:
    assert TEMPLATE.network == "none"
    assert STACKS.template(SPEC).key == TEMPLATE.key


def test_a_policy_that_grants_something_is_refused_and_never_weakened() -> None:
    with pytest.raises(NetworkUnenforceable, match="sha256:n") as caught:
        STACKS.template(replace(SPEC, network_digest="sha256:n"))
    told = translate(caught.value)
    assert told is not None and (told.code.name, told.reason) == ("INVALID_ARGUMENT", "NETWORK_UNENFORCEABLE")
    assert answer_to(WireFailure(told.code.name, told.reason, told.message)) is Answer.REFUSED


def test_policies_of_other_identities_never_share_an_entry() -> None:
    keys = {replace(TEMPLATE, network=network).key for network in ("none", "sha256:a", "sha256:b")}
    assert len(keys) == 3


def test_the_claim_carries_the_attempts_policy() -> None:

    spec = ChallengeSpec(id="fix-it", title="x", stack="python311", time_limit_seconds=60)
    request = claim_request(new_attempt("att_1", fence=1, network_digest="sha256:n"), spec)
    assert mapping.claim_spec(request).network_digest == "sha256:n"


def test_limits_above_the_policy_and_unknown_stacks_are_refused() -> None:
    with pytest.raises(ResourcesRefused):
        STACKS.template(replace(SPEC, resources={"memory_bytes": 2 << 30}))
    with pytest.raises(UnknownStack):
        STACKS.template(replace(SPEC, stack="cobol60"))
