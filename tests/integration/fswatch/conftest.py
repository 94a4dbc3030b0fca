"""A host with real mounts, as the workspace's own tests have it."""

from __future__ import annotations

from tests.integration.workspace.conftest import host

__all__ = ["host"]
