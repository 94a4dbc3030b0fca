"""Create, attach, start: one blocking piece of work that leaves all or nothing.

The hard part is time. The caller's deadline may pass, or its task be cancelled, while the engine still works: the
thread then finds its ticket given up and destroys what it got. If the engine dies under the call, nobody knows
whether a container exists: its name is handed to `late`, and the adapter looks for it until
the engine has answered.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import docker
import docker.errors

from daemon.runtime.docker_attach import attach_socket
from daemon.runtime.docker_config import container_body
from daemon.runtime.docker_engine import ENGINE_ERRORS, translate
from daemon.runtime.errors import CreateFailed, ImageMissing, NoSuchSandbox
from daemon.runtime.types import SandboxSpec

ATTACH_SECONDS = 30.0


class Ticket:
    """Who owns the outcome of one create: the caller until it gives up, else the thread."""

    def __init__(self) -> None:
        """Owned by the caller."""
        self._lock = threading.Lock()
        self._given_up = False
        self._delivered = False

    def give_up(self) -> bool:
        """The caller leaves. False when the thread has delivered already: the caller must destroy then."""
        with self._lock:
            self._given_up = True
            return not self._delivered

    def deliver(self) -> bool:
        """The thread is done. False when nobody waits: the thread must destroy then."""
        with self._lock:
            self._delivered = not self._given_up
            return self._delivered

    @property
    def given_up(self) -> bool:
        """Nobody waits any more: stop early."""
        with self._lock:
            return self._given_up


@dataclass(frozen=True, slots=True)
class Ends:
    """What to do about leavings.

    `late(name)` takes a name of which it cannot be known whether a container exists; `tidy(client, container_id)`
    removes what the engine left of a container whose start failed.
    """

    late: Callable[[str], None]
    tidy: Callable[[docker.APIClient, str], None]


@dataclass(frozen=True, slots=True)
class Attached:
    """A started container and the raw socket to its PID 1."""

    container_id: str
    sock: socket.socket


def create_attached(
    client: docker.APIClient, socket_path: str, spec: SandboxSpec, ticket: Ticket, ends: Ends
) -> Attached:
    """Blocking."""
    try:
        container_id: str = create_container(client, container_body(spec), spec.name)
    except docker.errors.APIError as error:
        # The engine has answered, so nothing exists of this name that is ours.
        raise _refusal(error, spec) from error
    except Exception:
        ends.late(spec.name)
        raise
    try:
        if ticket.given_up:
            raise CreateFailed("nobody waits for it any more")
        attached = Attached(container_id, attach_socket(socket_path, container_id, ATTACH_SECONDS))
        try:
            client.start(container_id)
            if not ticket.deliver():
                raise CreateFailed("nobody waits for it any more")
        except BaseException:
            attached.sock.close()
            raise
    except BaseException as error:
        _remove(client, container_id, spec.name, ends)
        if isinstance(error, docker.errors.APIError):
            raise _refusal(error, spec) from error
        raise
    return attached


def create_container(client: docker.APIClient, body: dict[str, Any], name: str) -> str:
    """POST the body as it is; the container's id. Blocking."""
    answer = client.create_container_from_config(body, name=name)  # type: ignore[no-untyped-call]
    return str(answer["Id"])


def _refusal(error: docker.errors.APIError, spec: SandboxSpec) -> Exception:
    fault = translate(error)
    match fault:
        case ImageMissing():
            return ImageMissing(spec.image)
        case NoSuchSandbox():
            # 404 on create is an image in some versions' words, on start a container removed under us.
            words = fault.detail
            return ImageMissing(spec.image) if "image" in words.lower() else CreateFailed(words)
        case None:
            return error
    return fault


def _remove(client: docker.APIClient, container_id: str, name: str, ends: Ends) -> None:
    try:
        with suppress(docker.errors.NotFound):
            client.remove_container(container_id, force=True, v=True)
    except ENGINE_ERRORS:  # the container may still be there; the first error is the one to tell
        ends.late(name)
    else:
        ends.tidy(client, container_id)
