"""Every refusal of the domain has its place on the wire."""

from __future__ import annotations

import pytest

from formats.problems import FormatError, Problem
from scheduler import errors
from scheduler.convert import page_position, page_token, priority_of, states_of
from scheduler.model import Priority

ALL: list[tuple[Exception, str, str]] = [
    (errors.AttemptUnknown("att_1"), "NOT_FOUND", "ATTEMPT_NOT_FOUND"),
    (errors.ChallengeUnknown("sha256:1"), "NOT_FOUND", "CHALLENGE_NOT_FOUND"),
    (errors.NodeUnknown("n"), "NOT_FOUND", "NODE_NOT_FOUND"),
    (errors.QueueFull(5), "RESOURCE_EXHAUSTED", "QUEUE_FULL"),
    (errors.RequestIdReused("r"), "INVALID_ARGUMENT", "REQUEST_ID_REUSED"),
    (errors.LeaseLost("l"), "FAILED_PRECONDITION", "LEASE_LOST"),
    (errors.NotLive("att_1", "QUEUED"), "FAILED_PRECONDITION", "ATTEMPT_NOT_RUNNING"),
    (errors.NoDiff("att_1", "QUEUED"), "FAILED_PRECONDITION", "NO_DIFF"),
    (errors.NoReport("att_1", "QUEUED"), "FAILED_PRECONDITION", "NO_REPORT"),
    (errors.BlobUnknown("sha256:1"), "NOT_FOUND", "BLOB_NOT_FOUND"),
    (errors.BadInput(("field", "problem")), "INVALID_ARGUMENT", "BAD_INPUT"),
    (errors.NodeUnreachable("n"), "UNAVAILABLE", "NODE_UNREACHABLE"),
    (FormatError([Problem("f", "k", "m", "r")]), "INVALID_ARGUMENT", "CHALLENGE_INVALID"),
]


@pytest.mark.parametrize(("error", "code", "reason"), ALL, ids=lambda value: type(value).__name__)
def test_mapping(error: Exception, code: str, reason: str) -> None:
    wire = errors.translate(error)
    assert wire is not None
    assert (wire.code.name, wire.reason) == (code, reason)
    assert wire.message


def test_every_refusal_is_mapped() -> None:
    assert {type(error) for error, _, _ in ALL} >= set(errors.SchedulerError.__subclasses__())


def test_what_is_not_ours_is_left_to_the_wire() -> None:
    assert errors.translate(RuntimeError("x")) is None


def test_enums_on_the_wire() -> None:
    assert priority_of(0) is Priority.PRACTICE
    assert priority_of(1) is Priority.BOUT
    for bad in (lambda: priority_of(9), lambda: states_of([0]), lambda: states_of([99])):
        with pytest.raises(errors.BadInput):
            bad()


@pytest.mark.parametrize("token", ["!", "c2Vx", "c2VxOng=", "\u00e4"])
def test_page_tokens_that_are_not_ours(token: str) -> None:
    with pytest.raises(errors.BadInput):
        page_position(token)


def test_page_tokens_come_back() -> None:
    assert page_position(page_token(17)) == 17
    assert page_position("") is None
