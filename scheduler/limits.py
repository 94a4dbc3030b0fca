"""Limits: how many attempts may hold a sandbox at once, overall, per agent, per challenge. Pure.

Defaults are the specification's ("Concurrent Attempt Limits"). An attempt at its agent's or challenge's limit waits
without holding up those behind it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from scheduler.model import Active

Count = Annotated[int, Field(ge=1, le=100_000, strict=True)]


class Limits(BaseModel):
    """The figures. `queue_timeout_seconds` is how long an attempt may wait before it ends FAILED."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    global_max: Count = 200
    per_agent_max: Count = 1
    per_challenge_max: Count = 50
    max_queue_depth: Count = 500
    queue_timeout_seconds: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] = 300.0


def blocked_by(limits: Limits, active: Active, agent_id: str, challenge_id: str) -> str | None:
    """The limit that one more attempt would break: GLOBAL_MAX, AGENT_BUSY or CHALLENGE_BUSY; None when it may start."""
    if active.total >= limits.global_max:
        return "GLOBAL_MAX"
    if active.by_agent[agent_id] >= limits.per_agent_max:
        return "AGENT_BUSY"
    if active.by_challenge[challenge_id] >= limits.per_challenge_max:
        return "CHALLENGE_BUSY"
    return None
