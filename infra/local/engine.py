"""A Docker client that is closed again, and one clear message when the engine is down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import docker
import docker.errors

from infra.local.kinds.base import ResourceFailed


@contextmanager
def engine(docker_host: str, timeout: int = 60) -> Iterator[docker.DockerClient]:
    """A client of the engine at `docker_host`. Raises ResourceFailed when none answers."""
    try:
        client = docker.DockerClient(base_url=docker_host, timeout=timeout)
        client.ping()
    except (docker.errors.DockerException, OSError) as error:
        raise ResourceFailed(f"no Docker engine answers at {docker_host}: start it, or run `make setup`") from error
    try:
        yield client
    finally:
        client.close()
