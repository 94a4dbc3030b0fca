"""From a claim to a template: a stack's defaults, the challenge's wishes, the node's policy.

Pure. The image behind a stack's tag is resolved once, at start; a template names everything by digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from daemon.attempts.databases import variables
from daemon.attempts.model import ClaimSpec, NetworkUnenforceable, ResourcesRefused, UnknownStack
from daemon.pool.template import Template
from daemon.runtime.types import Resources

# What a challenge may ask for, by the names of the claim.
OVERRIDES = ("memory_bytes", "cpu_millis", "disk_bytes", "pids", "tmp_bytes")


@dataclass(frozen=True, slots=True)
class Stack:
    """One kind of sandbox that this node offers: its default template, the most a challenge may ask for, its pool."""

    template: Template
    policy: Resources
    pool_target: int


class Stacks:
    """The node's stacks by name."""

    def __init__(self, stacks: Mapping[str, Stack]) -> None:
        self._stacks = dict(stacks)

    def __iter__(self) -> object:
        """Every stack."""
        return iter(self._stacks.values())

    def values(self) -> list[Stack]:
        """Every stack."""
        return list(self._stacks.values())

    def template(self, spec: ClaimSpec) -> Template:
        """The template that serves a claim. Raises UnknownStack, ResourcesRefused, NetworkUnenforceable.

        Every template here has the network `none`; a policy of another identity is refused, never weakened.
        """
        stack = self._stacks.get(spec.stack)
        if stack is None:
            raise UnknownStack(spec.stack, sorted(self._stacks))
        if spec.network_digest:
            raise NetworkUnenforceable(spec.network_digest)
        wanted = {name: value for name in OVERRIDES if (value := spec.resources.get(name, 0))}
        for name, value in wanted.items():
            allowed = getattr(stack.policy, name)
            if value > allowed:
                raise ResourcesRefused(name, value, allowed)
        if "memory_bytes" in wanted:
            wanted["memory_reservation_bytes"] = 0
        return replace(stack.template, resources=replace(stack.template.resources, **wanted))


def seed(challenge_id: str) -> str:
    """GAUNTLET_RANDOM_SEED: a number made from the challenge's id, the same for every attempt."""
    return str(int.from_bytes(hashlib.sha256(challenge_id.encode()).digest()[:4], "big"))


def environment(spec: ClaimSpec, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """What an assignment adds to the image's fixed environment, for agent and judges: no attempt id, nothing of this
    host. `extra` is a judge's own."""
    return {
        **variables(spec.database),
        **spec.environment,
        **(extra or {}),
        "GAUNTLET_RANDOM_SEED": seed(spec.challenge_id),
    }
