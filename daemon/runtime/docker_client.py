"""The Docker SDK's client on a unix socket, without the descriptor that the SDK leaks when a connection is refused.

Its connection class makes a socket, connects and only then keeps it, so a refusal leaves the socket to the garbage
collector. Ours closes it; everything else is the SDK's.
"""

from __future__ import annotations

import socket
from typing import Any

import docker
import docker.constants
from docker.transport.unixconn import UnixHTTPAdapter, UnixHTTPConnection, UnixHTTPConnectionPool

SCHEME = "http+docker://"


def open_client(socket_path: str, *, seconds: float, pool_size: int) -> docker.APIClient:
    """Return a client that speaks the engine's newest version. Blocking.

    `seconds` bounds every wait for an answer. Raises what the SDK raises when the engine does not answer.
    """
    first = _client(socket_path, docker.constants.DEFAULT_DOCKER_API_VERSION, seconds, pool_size)
    try:
        version = str(first.version(api_version=False)["ApiVersion"])  # asked without a version, as any engine allows
    finally:
        first.close()
    return _client(socket_path, version, seconds, pool_size)


def _client(socket_path: str, version: str, seconds: float, pool_size: int) -> docker.APIClient:
    client = docker.APIClient(base_url=f"unix://{socket_path}", version=version, timeout=int(seconds))
    client.mount(SCHEME, _Adapter(f"http+unix://{socket_path}", int(seconds), max_pool_size=pool_size))
    return client


class _Connection(UnixHTTPConnection):
    def connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(self.timeout)
        try:
            sock.connect(self.unix_socket)
        except OSError:
            sock.close()
            raise
        self.sock = sock


class _Pool(UnixHTTPConnectionPool):
    def _new_conn(self) -> Any:
        return _Connection(self.base_url, self.socket_path, self.timeout)  # type: ignore[arg-type]  # a stub's slip


class _Adapter(UnixHTTPAdapter):
    def get_connection(self, url: str | bytes, proxies: Any = None) -> _Pool:
        with self.pools.lock:
            pool = self.pools.get(url)
            if pool is None:
                pool = self.pools[url] = _Pool(str(url), self.socket_path, self.timeout, maxsize=self.max_pool_size)
            return pool
