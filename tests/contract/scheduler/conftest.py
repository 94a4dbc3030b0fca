"""Fixtures that the scheduler's contract tests share."""

from tests.support.postgres import postgres_cluster

__all__ = ["postgres_cluster"]
