"""The one error of the evaluator: an object or a document it cannot judge.

It refuses what it does not understand instead of skipping it, since a field that is skipped is a
rule that is silently missing from the verdict.
"""

from __future__ import annotations

__all__ = ["EvaluateError"]


class EvaluateError(ValueError):
    """An object cannot be judged; `where` names the object and the path of the field inside it."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where = where
        self.reason = reason
