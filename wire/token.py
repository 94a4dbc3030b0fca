"""An attempt's token: HMAC-SHA256 over attempt id and epoch with the server key; never stored.

Form: `gst1.<attempt id>.<epoch>.<hex>`. The epoch is the lease's fence, so that a new lease ends old tokens.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from pathlib import Path
from typing import Any

import grpc

from wire import errors

KEY_BYTES = 32
_TOKEN = re.compile(r"gst1\.(att_[a-z0-9]{1,64})\.(\d{1,18})\.([0-9a-f]{64})")


def load_key(path: Path) -> bytes:
    """The server key of a file. Raises ValueError, naming the file, when it is not 32 bytes."""
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise ValueError(f"{path}: the token key must be {KEY_BYTES} random bytes, it has {len(key)}")
    return key


def mint(key: bytes, attempt_id: str, epoch: int) -> str:
    """The token of an attempt in an epoch."""
    return f"gst1.{attempt_id}.{epoch}.{_digest(key, attempt_id, epoch)}"


def verify(key: bytes, token: str) -> tuple[str, int]:
    """(attempt id, epoch) of a valid token. Raises WireError UNAUTHENTICATED."""
    match = _TOKEN.fullmatch(token)
    if match is not None:
        attempt_id, epoch = match[1], int(match[2])
        if hmac.compare_digest(match[3], _digest(key, attempt_id, epoch)):
            return attempt_id, epoch
    raise unauthenticated()


def of_call(context: grpc.aio.ServicerContext[Any, Any]) -> str:
    """The bearer token of a call. Raises WireError UNAUTHENTICATED when there is none."""
    for name, value in context.invocation_metadata() or ():
        if name == "authorization" and isinstance(value, str) and value.startswith("Bearer "):
            return value.removeprefix("Bearer ")
    raise unauthenticated()


def unauthenticated() -> errors.WireError:
    """The one answer to every bad token: it says nothing about which part was wrong."""
    return errors.WireError(grpc.StatusCode.UNAUTHENTICATED, "TOKEN_INVALID", "a valid attempt token is required")


def _digest(key: bytes, attempt_id: str, epoch: int) -> str:
    return hmac.new(key, f"{attempt_id}\n{epoch}".encode(), hashlib.sha256).hexdigest()
