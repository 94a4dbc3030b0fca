"""The room's exceptions, and the one total mapping to errors on the wire.

Each docstring is the message's reason; attributes carry the figures.
"""

from __future__ import annotations

import grpc

from formats.problems import FormatError
from records.translate import translate as records_error
from wire import errors, request_ids


class SchedulerError(Exception):
    """Base of everything the domain refuses."""


class AttemptUnknown(SchedulerError):
    """No attempt has this id."""

    def __init__(self, attempt_id: str) -> None:
        super().__init__(f"no attempt {attempt_id!r}")
        self.attempt_id = attempt_id


class ChallengeUnknown(SchedulerError):
    """No challenge with this digest was uploaded."""

    def __init__(self, digest: str) -> None:
        super().__init__(f"no challenge {digest!r}; upload it first")
        self.digest = digest


class NodeUnknown(SchedulerError):
    """No node with this id has reported."""

    def __init__(self, node_id: str) -> None:
        super().__init__(f"no node {node_id!r}")
        self.node_id = node_id


class QueueFull(SchedulerError):
    """The queue holds as many attempts as it may."""

    def __init__(self, max_depth: int) -> None:
        super().__init__(f"the queue is full ({max_depth} attempts wait); try again later")
        self.max_depth = max_depth


class RequestIdReused(SchedulerError):
    """The request id was used for another request."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"request id {request_id} was used for another request")
        self.request_id = request_id


class LeaseLost(SchedulerError):
    """The judging lease expired, was given out again, or never existed."""

    def __init__(self, lease_id: str) -> None:
        super().__init__(f"the judging lease {lease_id!r} does not hold any more; drop the work")
        self.lease_id = lease_id


class NotLive(SchedulerError):
    """The attempt is not RUNNING, so there is no sandbox to reach."""

    def __init__(self, attempt_id: str, state: str) -> None:
        super().__init__(f"attempt {attempt_id} is {state}; only a RUNNING attempt has a sandbox to reach")
        self.attempt_id = attempt_id
        self.state = state


class NoDiff(SchedulerError):
    """The attempt has no frozen workspace to compare."""

    def __init__(self, attempt_id: str, state: str) -> None:
        super().__init__(f"attempt {attempt_id} ({state}) has no frozen workspace, so there is no diff")
        self.attempt_id = attempt_id


class NoReport(SchedulerError):
    """No judge has left documents about the attempt."""

    def __init__(self, attempt_id: str, state: str) -> None:
        super().__init__(f"attempt {attempt_id} ({state}) has no judge's report")
        self.attempt_id = attempt_id


class BlobUnknown(SchedulerError):
    """No event of the attempt names these bytes, or the node does not have them any more."""

    def __init__(self, digest: str) -> None:
        super().__init__(f"no bytes {digest!r} of this attempt")
        self.digest = digest


class BadInput(SchedulerError):
    """A field of a request does not hold what it must; `violations` are (field, problem)."""

    def __init__(self, *violations: tuple[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {problem}" for name, problem in violations))
        self.violations = violations


class NodeUnreachable(SchedulerError):
    """The node that holds the attempt does not answer."""

    def __init__(self, node_id: str) -> None:
        super().__init__(f"node {node_id} does not answer now; try again")
        self.node_id = node_id


def translate(error: Exception) -> errors.WireError | None:
    """The error on the wire; None for what is no refusal of ours (the wire says RUNTIME_FAULT)."""
    match error:
        case AttemptUnknown(attempt_id=name):
            return errors.not_found("attempt", name)
        case ChallengeUnknown(digest=name):
            return errors.not_found("challenge", name)
        case NodeUnknown(node_id=name):
            return errors.not_found("node", name)
        case QueueFull():
            return errors.exhausted("QUEUE_FULL", str(error), "queue", retry_after=5.0)
        case RequestIdReused(request_id=name):
            return request_ids.reused(name)
        case LeaseLost(lease_id=name):
            return errors.precondition("LEASE_LOST", str(error), name)
        case NotLive(attempt_id=name):
            return errors.precondition("ATTEMPT_NOT_RUNNING", str(error), name)
        case NoDiff(attempt_id=name):
            return errors.precondition("NO_DIFF", str(error), name)
        case NoReport(attempt_id=name):
            return errors.precondition("NO_REPORT", str(error), name)
        case BlobUnknown(digest=name):
            return errors.not_found("blob", name)
        case BadInput(violations=violations):
            return errors.invalid("BAD_INPUT", str(error), violations)
        case FormatError(problems=problems):
            return errors.invalid(
                "CHALLENGE_INVALID",
                "the challenge does not fit its format",
                [(f"{p.file}: {p.key}" if p.key else p.file, f"{p.message}; {p.remedy}") for p in problems],
            )
        case NodeUnreachable():
            return errors.WireError(grpc.StatusCode.UNAVAILABLE, "NODE_UNREACHABLE", str(error), retry_after=1.0)
        case _:
            return records_error(error)
