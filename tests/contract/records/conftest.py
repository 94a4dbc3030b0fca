"""Fixtures of the records room's tests that need a real database server."""

from tests.support.postgres import postgres_cluster

__all__ = ["postgres_cluster"]
