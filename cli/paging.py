"""Whole lists out of paged answers, one element at a time. Owns the page tokens, and nothing of what is listed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from gauntlet.scheduler.v1 import scheduler_service_pb2 as pb
from gauntlet.telemetry.v1 import event_service_pb2 as event_pb

from cli.clients import Services
from wire import client

ATTEMPTS_PAGE = 1000
EVENTS_PAGE = 5000


async def attempts(to: Services) -> AsyncIterator[pb.Attempt]:
    """Every attempt, newest first. Raises WireFailure."""
    request = pb.ListAttemptsRequest(page_size=ATTEMPTS_PAGE)
    while True:
        page = await client.call(to.scheduler.ListAttempts, request)
        for attempt in page.attempts:
            yield attempt
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token


async def events(to: Services, attempt_id: str, kind: str = "") -> AsyncIterator[dict[str, Any]]:
    """An attempt's events in order, of one kind or of all. Raises WireFailure."""
    request = event_pb.ListEventsRequest(attempt_id=attempt_id, kind=kind, page_size=EVENTS_PAGE)
    while True:
        page = await client.call(to.events.ListEvents, request)
        for line in page.events:
            event: dict[str, Any] = json.loads(line)
            yield event
        if not page.next_page_token:
            return
        request.page_token = page.next_page_token
