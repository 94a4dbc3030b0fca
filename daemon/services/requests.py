"""Request ids of one service: the same id may only ever carry the same body.

In memory and bounded: what an id did is found again by what it names (attempt, exec), here only its body is checked.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from google.protobuf.message import Message

from wire import request_ids

KEPT = 10_000
# 128 bits of a SHA-256: ten thousand ids in half the memory that the texts would take.
DIGEST_BYTES = 16


class RequestLog:
    """Fingerprints by principal and request id."""

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, bytes] = OrderedDict()

    def check(self, principal: str, message: Message) -> str:
        """The message's request id. Raises WireError for none, and for one that carried another body."""
        request_id = request_ids.require(getattr(message, "request_id", ""))
        key = hashlib.sha256(f"{principal}\0{request_id}".encode()).digest()[:DIGEST_BYTES]
        body = bytes.fromhex(request_ids.fingerprint(message))[:DIGEST_BYTES]
        known = self._seen.setdefault(key, body)
        if known != body:
            raise request_ids.reused(request_id)
        while len(self._seen) > KEPT:
            self._seen.popitem(last=False)
        return request_id
