"""Request ids of one service: the same id may only ever carry the same body.

In memory and bounded: what an id did is found again by what it names (attempt, exec), here only its body is checked.
"""

from __future__ import annotations

from collections import OrderedDict

from google.protobuf.message import Message

from wire import request_ids

KEPT = 10_000


class RequestLog:
    """Fingerprints by principal and request id."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, str], str] = OrderedDict()

    def check(self, principal: str, message: Message) -> str:
        """The message's request id. Raises WireError for none, and for one that carried another body."""
        request_id = request_ids.require(getattr(message, "request_id", ""))
        body = request_ids.fingerprint(message)
        known = self._seen.setdefault((principal, request_id), body)
        if known != body:
            raise request_ids.reused(request_id)
        while len(self._seen) > KEPT:
            self._seen.popitem(last=False)
        return request_id
