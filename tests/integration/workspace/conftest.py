"""A workspace manager on a state directory of its own, checked to have left nothing when it is done."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.workspaces import Host


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    """A started manager with the template stored. Everything must be gone at the end."""
    assert os.geteuid() == 0, "these tests mount file systems: run them as root (make test does)"
    host = Host(tmp_path)
    await host.manager.start()
    await host.manager.add_template(host.package, host.digest)
    yield host
    await host.new_manager().reclaim(keep=frozenset())
    await host.manager.close()
    await host.nothing_left()
    host.executor.shutdown()
