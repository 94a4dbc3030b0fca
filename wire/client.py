"""Channels and calls for clients: keepalive, a deadline on every call, retries of UNAVAILABLE only.

A retry sends the same message, so the same request_id: the server answers it once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import grpc

from wire import errors
from wire.server import socket_path

Request = TypeVar("Request", contravariant=True)
Response = TypeVar("Response", covariant=True)
Message = TypeVar("Message")
Answer = TypeVar("Answer")

OPTIONS = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # A unix socket whose server restarts must be found again within a second, not after gRPC's default two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)
RETRIES = 3
DEFAULT_TIMEOUT = 10.0


class Method(Protocol[Request, Response]):
    """A stub's unary method."""

    def __call__(
        self,
        request: Request,
        /,
        *,
        timeout: float | None = ...,
        metadata: Sequence[tuple[str, str]] | None = ...,
    ) -> Awaitable[Response]:
        """Call it."""
        ...


def connect(endpoint: str) -> grpc.aio.Channel:
    """A channel to a `unix:///path` or loopback `host:port` endpoint. Raises EndpointError for anything else."""
    path = socket_path(endpoint)
    return grpc.aio.insecure_channel(f"unix:{path}" if path is not None else endpoint, options=OPTIONS)


def bearer(token: str | None) -> tuple[tuple[str, str], ...]:
    """Call metadata that carries an attempt's token."""
    return (("authorization", f"Bearer {token}"),) if token else ()


async def call(
    method: Method[Message, Answer],
    request: Message,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    token: str | None = None,
    retries: int = RETRIES,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Answer:
    """Make one unary call. Raises WireFailure; UNAVAILABLE is retried `retries` times with back-off."""
    delay = 0.1
    for attempt in range(retries + 1):
        try:
            return await method(request, timeout=timeout, metadata=bearer(token))
        except grpc.RpcError as error:
            failure = errors.decode(error)
            if failure.code != "UNAVAILABLE" or attempt == retries:
                raise failure from error
            await sleep(failure.retry_after if failure.retry_after is not None else delay)
            delay = min(delay * 2, 1.0)
    raise AssertionError("unreachable")
