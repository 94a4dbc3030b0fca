"""The independent evaluator: from policy objects back to the verdict matrix.

It shares no code with the renderers, so that the two agreeing means something. See `flows` for single
verdicts, `matrix` for the table, `invariants` for what must hold of every rendered object.
"""

from network.evaluate.errors import EvaluateError
from network.evaluate.matrix import evaluate

__all__ = ["EvaluateError", "evaluate"]
