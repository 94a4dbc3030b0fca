"""Rich gRPC errors, both directions.

`WireError` is what a servicer raises; it becomes a `google.rpc.Status` with ErrorInfo always, and RetryInfo,
QuotaFailure, PreconditionFailure, ResourceInfo or BadRequest where they apply. `decode` turns what a client caught
back into a `WireFailure`. Source: google/rpc/error_details.proto, AIP-193.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import quote

import grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2

DOMAIN = "gauntlet-sandbox"
DETAILS_KEY = "grpc-status-details-bin"
# Trailing metadata travels in HTTP/2 headers, which receivers cap at 8 KiB by default. An error beyond a receiver's
# cap arrives as a broken stream without any reason, so what does not fit is counted instead of sent.
MAX_TRAILER_BYTES = 7_500
MAX_MESSAGE_CHARS = 2_000
MAX_MESSAGE_BYTES = 3_000
"""The message is sent twice, in the status and percent-encoded in a header of its own."""
_PLAIN = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
_RESERVED_BYTES = 120
"""For the type's name and for the count of what did not fit."""


class WireError(Exception):
    """An error with a place on the wire.

    `reason` is UPPER_SNAKE_CASE and stable, `message` is for a person and says the remedy. `violations` are
    (field, description), `quota` (subject, description), `precondition` (type, subject, description), `resource`
    (type, name). `retry_after` is in seconds.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        reason: str,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        retry_after: float | None = None,
        violations: Sequence[tuple[str, str]] = (),
        quota: Sequence[tuple[str, str]] = (),
        precondition: Sequence[tuple[str, str, str]] = (),
        resource: tuple[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.metadata = dict(metadata or {})
        self.retry_after = retry_after
        self.violations = tuple(violations)
        self.quota = tuple(quota)
        self.precondition = tuple(precondition)
        self.resource = resource


def invalid(reason: str, message: str, violations: Sequence[tuple[str, str]] = ()) -> WireError:
    """Bad input: INVALID_ARGUMENT with one field violation per problem."""
    return WireError(grpc.StatusCode.INVALID_ARGUMENT, reason, message, violations=violations)


def not_found(kind: str, name: str) -> WireError:
    """An unknown id: NOT_FOUND with ResourceInfo."""
    return WireError(
        grpc.StatusCode.NOT_FOUND, f"{kind.upper()}_NOT_FOUND", f"no {kind} {name!r}", resource=(kind, name)
    )


def precondition(reason: str, message: str, subject: str = "") -> WireError:
    """A state that forbids the call: FAILED_PRECONDITION with PreconditionFailure."""
    return WireError(grpc.StatusCode.FAILED_PRECONDITION, reason, message, precondition=((reason, subject, message),))


def unavailable(reason: str, message: str, retry_after: float = 1.0) -> WireError:
    """Not now: UNAVAILABLE with RetryInfo."""
    return WireError(grpc.StatusCode.UNAVAILABLE, reason, message, retry_after=retry_after)


def exhausted(reason: str, message: str, subject: str, retry_after: float = 1.0) -> WireError:
    """A limit was reached: RESOURCE_EXHAUSTED with QuotaFailure and RetryInfo."""
    return WireError(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        reason,
        message,
        retry_after=retry_after,
        quota=((subject, message),),
    )


def internal() -> WireError:
    """Our own fault: INTERNAL, without internals for tenants."""
    return WireError(grpc.StatusCode.INTERNAL, "RUNTIME_FAULT", "the service failed; its log has the details")


def to_status(error: WireError) -> status_pb2.Status:
    """The `google.rpc.Status` of an error."""
    message = _message(error.message)
    status = status_pb2.Status(code=error.code.value[0], message=message)
    info = error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=error.metadata)
    details: list[object] = [info]
    if error.retry_after is not None:
        delay = duration_pb2.Duration(nanos=0)
        delay.FromNanoseconds(int(error.retry_after * 1e9))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    if error.quota:
        quota = error_details_pb2.QuotaFailure()
        for subject, description in error.quota:
            quota.violations.add(subject=subject, description=description[:MAX_MESSAGE_CHARS])
        details.append(quota)
    if error.precondition:
        failure = error_details_pb2.PreconditionFailure()
        for kind, subject, description in error.precondition:
            failure.violations.add(type=kind, subject=subject, description=description[:MAX_MESSAGE_CHARS])
        details.append(failure)
    if error.resource is not None:
        kind, name = error.resource
        details.append(error_details_pb2.ResourceInfo(resource_type=kind, resource_name=name))
    for detail in details:
        _pack(status, detail)
    if error.violations:
        _pack(status, _bad_request(error.violations, MAX_TRAILER_BYTES - status.ByteSize() - _encoded_bytes(message)))
    return status


def _pack(status: status_pb2.Status, detail: object) -> None:
    packed = any_pb2.Any()
    packed.Pack(detail)  # type: ignore[arg-type]
    status.details.append(packed)


def _cut(text: str, limit: int = MAX_MESSAGE_CHARS) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _encoded_bytes(text: str) -> int:
    """The size of a text as gRPC's own message header carries it."""
    return len(quote(text, safe=_PLAIN))


def _message(text: str) -> str:
    """The text as far as it fits both ways in which it is sent."""
    text = _cut(text)
    while _encoded_bytes(text) > MAX_MESSAGE_BYTES:
        text = _cut(text, len(text) * 3 // 4)
    return text


def _bad_request(violations: Sequence[tuple[str, str]], room: int) -> error_details_pb2.BadRequest:
    """The violations that fit into `room` bytes, each whole up to 2,000 characters, and how many more there are."""
    bad = error_details_pb2.BadRequest()
    room -= _RESERVED_BYTES
    for told, (path, description) in enumerate(violations):
        entry = error_details_pb2.BadRequest.FieldViolation(field=_cut(path, 500), description=_cut(description))
        while not told and entry.ByteSize() + 4 > room and len(entry.description) > 100:
            entry.description = _cut(entry.description, len(entry.description) * 3 // 4)  # one at least is told
        size = entry.ByteSize() + 4
        if size > room:
            rest = len(violations) - told
            bad.field_violations.add(description=f"and {rest} more problem{'s' if rest > 1 else ''}")
            break
        bad.field_violations.append(entry)
        room -= size
    return bad


@dataclass(eq=False)
class WireFailure(Exception):
    """What a client caught, decoded. `code` is the gRPC code's name, for example NOT_FOUND.

    Not frozen: contextlib sets `__traceback__` on an exception that passes a generator.
    """

    code: str
    reason: str
    message: str
    metadata: dict[str, str] = field(default_factory=dict)
    retry_after: float | None = None
    violations: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        text = self.message or self.code
        untold = [
            f"{path}: {description}" if path else description
            for path, description in self.violations
            if description not in text
        ]
        return text + "".join(f"\n  {line}" for line in untold)


def decode(error: grpc.RpcError) -> WireFailure:
    """The failure behind a caught RpcError; one without details keeps its code and words."""
    code = error.code().name if hasattr(error, "code") else "UNKNOWN"
    message = (error.details() or "") if hasattr(error, "details") else str(error)
    trailing = error.trailing_metadata() if hasattr(error, "trailing_metadata") else None
    for key, value in cast(Iterable[tuple[str, bytes]], trailing or ()):
        if key == DETAILS_KEY:
            return _from_status(status_pb2.Status.FromString(value))
    return WireFailure(code=code, reason="", message=message)


def _from_status(status: status_pb2.Status) -> WireFailure:
    reason, metadata, retry_after = "", {}, None
    violations: list[tuple[str, str]] = []
    for detail in status.details:
        if detail.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            info = error_details_pb2.ErrorInfo()
            detail.Unpack(info)
            reason, metadata = info.reason, dict(info.metadata)
        elif detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            retry = error_details_pb2.RetryInfo()
            detail.Unpack(retry)
            retry_after = retry.retry_delay.ToNanoseconds() / 1e9
        elif detail.Is(error_details_pb2.BadRequest.DESCRIPTOR):
            bad = error_details_pb2.BadRequest()
            detail.Unpack(bad)
            violations.extend((v.field, v.description) for v in bad.field_violations)
    return WireFailure(
        code=code_pb2.Code.Name(status.code),
        reason=reason,
        message=status.message,
        metadata=metadata,
        retry_after=retry_after,
        violations=tuple(violations),
    )
