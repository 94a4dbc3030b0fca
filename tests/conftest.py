"""What holds for every test session: the machine's state before it is kept, for the test that runs last."""

from __future__ import annotations

import os

# Before anything imports gRPC: tests start programs beside its threads, and its fork handlers have crashed a child.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

import pytest

from tests.support.leftovers import Leftovers, snapshot

BEFORE: pytest.StashKey[Leftovers] = pytest.StashKey()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Look before the first test."""
    session.config.stash[BEFORE] = snapshot()


@pytest.fixture
def before(request: pytest.FixtureRequest) -> Leftovers:
    """What was there before the first test."""
    return request.config.stash[BEFORE]
