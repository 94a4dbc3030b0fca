"""Request ids: made by the client, checked and fingerprinted by the server (AIP-155)."""

from __future__ import annotations

import hashlib
import uuid

from google.protobuf.message import Message

from wire import errors


def new() -> str:
    """A fresh request id."""
    return str(uuid.uuid4())


def require(request_id: str) -> str:
    """The id in its canonical form. Raises WireError INVALID_ARGUMENT when it is no UUID."""
    try:
        return str(uuid.UUID(request_id))
    except ValueError:
        raise errors.invalid(
            "REQUEST_ID_INVALID", "request_id must be a UUID", [("request_id", "not a UUID")]
        ) from None


def fingerprint(message: Message) -> str:
    """SHA-256 over a message without its request_id: equal bodies give equal fingerprints."""
    body = type(message)()
    body.CopyFrom(message)
    body.ClearField("request_id")
    name = message.DESCRIPTOR.full_name.encode()
    return hashlib.sha256(name + b"\0" + body.SerializeToString(deterministic=True)).hexdigest()


def reused(request_id: str) -> errors.WireError:
    """The answer to a known id with another body."""
    return errors.invalid(
        "REQUEST_ID_REUSED",
        f"request_id {request_id} was used for another request; make a new UUID for each request",
        [("request_id", "used before with another body")],
    )
