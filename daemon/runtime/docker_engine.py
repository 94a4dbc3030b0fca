"""Blocking calls of the Docker SDK, taken off the event loop.

Owns the client (made on first use, dropped when the engine goes away), the bounded thread pools, the deadlines and the
mapping of the SDK's errors to the port's. Leaves out every meaning: that is the adapter's.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import docker
import docker.errors
import requests.exceptions
import urllib3.exceptions

from daemon.runtime.docker_client import open_client
from daemon.runtime.errors import (
    CreateFailed,
    ImageMissing,
    NoSuchSandbox,
    RuntimeFault,
    RuntimeTimeout,
    RuntimeUnavailable,
)

T = TypeVar("T")

ENGINE_ERRORS = (
    docker.errors.DockerException,
    requests.exceptions.RequestException,
    urllib3.exceptions.HTTPError,
    OSError,
)
"""Whatever the SDK raises when the engine refuses, breaks off or is away."""

HTTP_SECONDS = 180.0
"""How long a socket waits for an answer: far beyond any deadline of ours, so that a late answer is still heard."""


class Engine:
    """One Docker engine, reached by its unix socket."""

    def __init__(self, socket_path: str, *, quick_threads: int = 4, slow_threads: int = 6) -> None:
        """Make no connection yet.

        Looks and kills have threads of their own, so that creates that hang cannot keep a sandbox alive.
        """
        self._socket_path = socket_path
        self._quick = ThreadPoolExecutor(quick_threads, thread_name_prefix="docker-quick")
        self._slow = ThreadPoolExecutor(slow_threads, thread_name_prefix="docker-slow")
        self._pool_size = quick_threads + slow_threads
        self._lock = threading.Lock()
        self._client: docker.APIClient | None = None

    def client(self) -> docker.APIClient:
        """The shared client, negotiated with the engine. Blocking; call it in a thread of ours."""
        with self._lock:
            if self._client is None:
                self._client = open_client(self._socket_path, seconds=HTTP_SECONDS, pool_size=self._pool_size)
            return self._client

    def forget(self) -> None:
        """Drop the client: the engine that comes back may be another version."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def submit(self, work: Callable[[docker.APIClient], T], *, slow: bool = False) -> Future[T]:
        """Run `work(client)` in a thread; errors are mapped already."""
        return (self._slow if slow else self._quick).submit(self._run, work)

    async def call(
        self,
        name: str,
        work: Callable[[docker.APIClient], T],
        *,
        seconds: float,
        slow: bool = False,
        discard: Callable[[T], None] | None = None,
    ) -> T:
        """Run `work(client)` in a thread and wait at most `seconds`; the thread itself is not interrupted.

        A result that comes when nobody waits any more goes to `discard`.
        """
        future = self.submit(work, slow=slow)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(future)
        except BaseException as error:
            if discard is not None:
                future.add_done_callback(lambda done: _give(done, discard))
            if isinstance(error, TimeoutError):
                raise RuntimeTimeout(name, seconds) from None
            raise

    def _run(self, work: Callable[[docker.APIClient], T]) -> T:
        try:
            return work(self.client())
        except RuntimeUnavailable:
            self.forget()
            raise
        except RuntimeFault:
            raise
        except Exception as error:
            fault = translate(error)
            if fault is None:
                raise
            if isinstance(fault, RuntimeUnavailable):
                self.forget()
            raise fault from error

    async def close(self, seconds: float) -> None:
        """End the threads, waiting at most `seconds` for calls under way."""
        loop = asyncio.get_running_loop()
        for pool in (self._quick, self._slow):
            pool.shutdown(wait=False, cancel_futures=True)
        waiting = asyncio.gather(*(loop.run_in_executor(None, pool.shutdown) for pool in (self._quick, self._slow)))
        try:
            async with asyncio.timeout(seconds):
                await waiting
        except TimeoutError:
            return  # a hung engine: its threads end with the process
        finally:
            self.forget()


def _give(done: Future[T], discard: Callable[[T], None]) -> None:
    if not done.cancelled() and done.exception() is None:
        discard(done.result())


def translate(error: Exception) -> RuntimeFault | None:
    """The port's error for one of the SDK's; None for anything else (a bug of ours)."""
    match error:
        case docker.errors.ImageNotFound():
            return ImageMissing(_words(error))
        case docker.errors.NotFound():
            return NoSuchSandbox("", _words(error))
        case docker.errors.APIError():
            return CreateFailed(_words(error))
        case requests.exceptions.ReadTimeout() | urllib3.exceptions.ReadTimeoutError():
            return RuntimeTimeout("the engine", HTTP_SECONDS)
        case requests.exceptions.RequestException() | urllib3.exceptions.HTTPError() | ConnectionError():
            return RuntimeUnavailable(f"the Docker engine does not answer: {error}")
        case docker.errors.DockerException():
            return RuntimeUnavailable(f"the Docker engine cannot be reached: {error}")
    return None


def _words(error: docker.errors.APIError) -> str:
    return str(error.explanation or error)
