"""One way to set up a gRPC server: unix or loopback endpoint, health, reflection, limits, interceptors.

A unix socket's directory must exist; its mode and group are set before the first call can be served. Nothing here
listens on TCP beyond loopback.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from wire.interceptors import ErrorInterceptor, Translate, translate_nothing

MAX_CONCURRENT_RPCS = 1_000
# Linux allows 108 bytes for a unix socket's path, the final NUL included.
MAX_SOCKET_PATH = 107
OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 15_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.so_reuseport", 0),
)


class EndpointError(ValueError):
    """An endpoint that cannot be served or reached; the message says what to write instead."""


def socket_path(endpoint: str) -> Path | None:
    """The path of a `unix:` endpoint, None for a loopback `host:port`.

    Raises EndpointError for a path that is too long for a unix socket and for an address beyond loopback.
    """
    if endpoint.startswith("unix:"):
        path = endpoint.removeprefix("unix:")
        path = path.removeprefix("//") if path.startswith("//") else path
        if not path.startswith("/"):
            raise EndpointError(f"{endpoint!r}: write unix:///absolute/path")
        if len(os.fsencode(path)) > MAX_SOCKET_PATH:
            raise EndpointError(f"{path!r} is longer than a unix socket's path may be ({MAX_SOCKET_PATH} bytes)")
        return Path(path)
    host = endpoint.rsplit(":", 1)[0].strip("[]")
    if host not in {"127.0.0.1", "::1", "localhost"}:
        raise EndpointError(f"{endpoint!r}: only unix:///path and loopback addresses are served")
    return None


Register = Callable[[Any, grpc.aio.Server], None]


class Server:
    """A server for one socket. `services` maps full service names to (register function, servicer)."""

    def __init__(
        self,
        endpoint: str,
        services: Mapping[str, tuple[Register, Any]],
        *,
        translate: Translate = translate_nothing,
        socket_mode: int = 0o600,
        socket_gid: int | None = None,
    ) -> None:
        self.endpoint = endpoint
        self._path = socket_path(endpoint)
        self._mode = socket_mode
        self._gid = socket_gid
        self._server = grpc.aio.server(
            interceptors=[ErrorInterceptor(translate)],
            options=OPTIONS,
            maximum_concurrent_rpcs=MAX_CONCURRENT_RPCS,
        )
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        for register, servicer in services.values():
            register(servicer, self._server)
        self._names = tuple(services)
        reflection.enable_server_reflection((*self._names, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)

    async def start(self) -> None:
        """Bind and serve. Raises EndpointError when the address cannot be bound."""
        target = f"unix:{self._path}" if self._path is not None else self.endpoint
        old_umask = os.umask(0o177)
        try:
            if self._server.add_insecure_port(target) == 0:
                raise EndpointError(f"cannot listen on {self.endpoint}")
        except RuntimeError as error:
            raise EndpointError(f"cannot listen on {self.endpoint}: {error}") from error
        finally:
            os.umask(old_umask)
        if self._path is not None:
            if self._gid is not None:
                os.chown(self._path, -1, self._gid)
            self._path.chmod(self._mode)
        await self._server.start()
        for name in ("", *self._names):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def stop(self, grace: float = 2.0) -> None:
        """Say NOT_SERVING, let calls end for `grace` seconds, stop, and remove the socket."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace)
        if self._path is not None:
            self._path.unlink(missing_ok=True)
