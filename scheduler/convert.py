"""Between the domain's values and `gauntlet.scheduler.v1` messages. Pure."""

from __future__ import annotations

import base64
import binascii

from gauntlet.scheduler.v1 import scheduler_service_pb2 as pb
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from formats.record import Fault, Outcome, State
from scheduler.errors import BadInput
from scheduler.model import Attempt, Priority, RequestKey
from scheduler.nodes import Node
from scheduler.record_builder import build_record, report_of
from wire import request_ids

# The operator socket's file mode is its authorisation; whoever may open it is the operator.
OPERATOR = "operator"
MAX_PAGE = 1_000
DEFAULT_PAGE = 100


def request_key(request_id: str, message: Message, principal: str = OPERATOR) -> RequestKey:
    """The key of a mutating request. Raises WireError for an id that is no UUID."""
    return RequestKey(principal, request_ids.require(request_id), request_ids.fingerprint(message))


def priority_of(value: int) -> Priority:
    """The priority on the wire; unset means practice. Raises BadInput."""
    if value == pb.PRIORITY_UNSPECIFIED:
        return Priority.PRACTICE
    try:
        return Priority(value)
    except ValueError:
        raise BadInput(("priority", f"{value} is no priority")) from None


def states_of(values: list[int]) -> frozenset[State]:
    """States on the wire. Raises BadInput."""
    names: dict[int, State] = {state_value(state): state for state in State}
    unknown = [value for value in values if value not in names]
    if unknown:
        raise BadInput(("states", f"{unknown[0]} is no state"))
    return frozenset(names[value] for value in values)


def attempt_message(attempt: Attempt, agent_endpoint: str = "", *, record: bool = True) -> pb.Attempt:
    """An attempt on the wire. `agent_endpoint` is its node's, shown while RUNNING."""
    state = attempt.public_state
    message = pb.Attempt(
        attempt_id=attempt.attempt_id,
        challenge_id=attempt.challenge_id,
        challenge_digest=attempt.challenge_digest,
        agent_id=attempt.agent_id,
        priority=pb.Priority.ValueType(attempt.priority.value),
        state=state_value(state),
        outcome=_outcome(attempt.outcome),
        fault=_fault(attempt.fault),
        flags=[flag.value for flag in attempt.flags],
        node_id=attempt.node_id or "",
        node_endpoint=agent_endpoint if state is State.RUNNING else "",
        create_time=_time(attempt.created_ns),
        start_time=_time(attempt.started_ns),
        deadline_time=_time(attempt.deadline_ns),
        end_time=_time(attempt.ended_ns),
        reason=attempt.reason or "",
        supersedes=attempt.supersedes or "",
    )
    if record:
        message.record_json = build_record(attempt).canonical()
        report = report_of(attempt)
        if report is not None:
            message.artifact_path = report.workspace.artifact_path
    return message


def state_value(state: State) -> pb.AttemptState.ValueType:
    """A state on the wire."""
    return pb.AttemptState.Value(f"ATTEMPT_STATE_{state.value}")


def node_message(node: Node, stale: bool) -> pb.Node:
    """A node on the wire."""
    return pb.Node(
        node_id=node.row.node_id,
        endpoint=node.row.endpoint,
        capacity=node.row.capacity,
        running=node.running,
        draining=node.row.draining,
        stale=stale,
        heartbeat_time=_time(node.heartbeat_ns),
        pools=node.pools,
    )


def page_size(asked: int) -> int:
    """How many to list. Raises BadInput for a negative figure."""
    if asked < 0:
        raise BadInput(("page_size", "must not be negative"))
    return min(asked or DEFAULT_PAGE, MAX_PAGE)


def page_token(seq: int) -> str:
    """The token of a page that goes on below `seq`."""
    return base64.urlsafe_b64encode(f"seq:{seq}".encode()).decode()


def page_position(token: str) -> int | None:
    """The position behind a token; None for the first page. Raises BadInput."""
    if not token:
        return None
    try:
        kind, _, number = base64.urlsafe_b64decode(token.encode()).decode().partition(":")
        if kind == "seq":
            return int(number)
    except (binascii.Error, ValueError):
        pass
    raise BadInput(("page_token", "is not one that this service gave out"))


def _outcome(outcome: Outcome | None) -> pb.Outcome.ValueType:
    return pb.Outcome.Value(f"OUTCOME_{outcome.value}") if outcome is not None else pb.OUTCOME_UNSPECIFIED


def _fault(fault: Fault | None) -> pb.Fault.ValueType:
    return pb.Fault.Value(f"FAULT_{fault.value}") if fault is not None else pb.FAULT_UNSPECIFIED


def _time(nanoseconds: int | None) -> Timestamp | None:
    if not nanoseconds:
        return None
    stamp = Timestamp()
    stamp.FromNanoseconds(nanoseconds)
    return stamp
