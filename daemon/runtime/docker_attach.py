"""The hijacked connection to a container's stdin, stdout and stderr, as a raw socket.

Spoken by hand: the SDK hands out a reader that shares its socket with a pooled connection and may already have
swallowed the first bytes of the stream, which would tear the multiplexed frames when a running sandbox is attached.
"""

from __future__ import annotations

import json
import socket

from daemon.runtime.errors import CreateFailed, NoSuchSandbox, RuntimeTimeout, RuntimeUnavailable

HEAD_LIMIT = 16 * 1024
BODY_LIMIT = 64 * 1024


def attach_socket(socket_path: str, container_id: str, seconds: float) -> socket.socket:
    """Connect and upgrade; the socket is the caller's, blocking, positioned at the stream's first byte. Blocking.

    Raises NoSuchSandbox, CreateFailed, RuntimeUnavailable, RuntimeTimeout.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(seconds)
        sock.connect(socket_path)
        sock.sendall(
            f"POST /containers/{container_id}/attach?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1\r\n"
            "Host: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n".encode()
        )
        head = _head(sock)
        status = int(head.split(maxsplit=2)[1])
        if status not in (101, 200):
            raise _refusal(sock, status, head, container_id)
        sock.settimeout(None)
    except TimeoutError:
        sock.close()
        raise RuntimeTimeout("attach", seconds) from None
    except OSError as error:
        sock.close()
        raise RuntimeUnavailable(f"the Docker engine does not answer: {error}") from error
    except BaseException:
        sock.close()
        raise
    return sock


def _head(sock: socket.socket) -> str:
    """Status line and headers, and not one byte more."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = sock.recv(1)
        if not byte or len(head) > HEAD_LIMIT:
            raise RuntimeUnavailable(f"the Docker engine answered an attach with {head[:80]!r}")
        head += byte
    return head.decode("latin-1")


def _refusal(sock: socket.socket, status: int, head: str, container_id: str) -> Exception:
    length = 0
    for line in head.lower().splitlines():
        if line.startswith("content-length:"):
            length = min(int(line.partition(":")[2]), BODY_LIMIT)
    body = b""
    while len(body) < length:
        piece = sock.recv(length - len(body))
        if not piece:
            break
        body += piece
    try:
        words = str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        words = body.decode("utf-8", "replace").strip() or f"status {status}"
    if status in (404, 409):
        return NoSuchSandbox(container_id, words)
    return CreateFailed(f"attach: {words}")
