"""Bytes that agents wrote, for operators: found by the events that name them, fetched from the node that keeps them.

Owns the rule that a digest opens only what the attempt's own events name, so that knowing one attempt gives no way to
guess at another's. Bytes are kept by the nodes; what events say about them is `formats.replay`'s word.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from formats.replay import contents_of
from records.events.port import EventQuery, EventStore
from scheduler.attempts import Attempts
from scheduler.errors import BlobUnknown, NodeUnreachable
from scheduler.nodes import Nodes
from wire.errors import WireFailure

KIND = "tool_invocation"


class Blobs:
    """Serves bytes by digest."""

    def __init__(self, attempts: Attempts, nodes: Nodes, events: EventStore) -> None:
        self._attempts = attempts
        self._nodes = nodes
        self._events = events

    async def read(self, attempt_id: str, digest: str) -> AsyncIterator[bytes]:
        """The bytes, in pieces. Raises AttemptUnknown, BlobUnknown, NodeUnreachable, StoreUnavailableError."""
        attempt = await self._attempts.get(attempt_id)
        if attempt.node_id is None or not await self._named(attempt_id, digest):
            raise BlobUnknown(digest)
        try:
            async for message in self._nodes.get(attempt.node_id).client.blob(attempt_id, digest):
                yield message.chunk
        except WireFailure as failure:
            if failure.code == "UNAVAILABLE":
                raise NodeUnreachable(attempt.node_id) from failure
            if failure.code == "NOT_FOUND":
                raise BlobUnknown(digest) from failure
            raise

    async def _named(self, attempt_id: str, digest: str) -> bool:
        """Whether an event of the attempt names the digest as bytes of its own; a mention in a text does not count."""
        query, token = EventQuery(attempt_id, KIND), ""
        while True:
            page = await asyncio.to_thread(self._events.list_events, query, page_token=token)
            for line in page.lines:
                if digest.encode() in line:
                    contents = contents_of(json.loads(line)).values()
                    if any(content.digest == digest and content.stored for content in contents):
                        return True
            token = page.next_page_token
            if not token:
                return False
