"""Starts the resource sampling of an attempt that runs: where its counters are is asked of the engine, off the claim
path.
"""

from __future__ import annotations

import structlog

from daemon.attempts.context import NodeContext
from daemon.attempts.live import LiveAttempt
from daemon.runtime.errors import RuntimeFault
from daemon.telemetry.cgroup import CgroupSource
from daemon.telemetry.types import Limits, SourceGoneError

log = structlog.get_logger(__name__)


async def start_sampling(node: NodeContext, attempt: LiveAttempt) -> None:
    """Sample until the end. A sandbox that is gone already has nothing to sample."""
    facts = attempt.facts
    if facts.limits is None:
        return
    try:
        source = CgroupSource(await node.runtime.cgroup(facts.container_id))
        tasks = await node.runtime.task_counter(facts.container_id)
    except (RuntimeFault, SourceGoneError) as error:
        log.warning("sampling_not_started", attempt_id=facts.attempt_id, error=str(error))
        node.telemetry.record_loss(facts.attempt_id, "resource", None, f"sampling did not start: {error}")
        return
    node.telemetry.start_sampling(facts.attempt_id, source, Limits(facts.limits.memory_bytes), tasks)
