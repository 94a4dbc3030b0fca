"""`hidden/judge_config/objective.yaml`: which suites the objective judge runs and what they weigh.

Owns schema and documented defaults. How a suite is run and scored is the room `judges`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from formats.problems import load_yaml, validate

FILE = "hidden/judge_config/objective.yaml"
MAX_TIMEOUT_SECONDS = 300
VISIBLE = "visible"
HIDDEN_SUITES = ("edge_cases", "security", "performance", "regression")
SUITES = (VISIBLE, *HIDDEN_SUITES)
# The visible suite weighs 30, the hidden suites that exist share 70.
VISIBLE_WEIGHT = 30.0
HIDDEN_WEIGHT = 70.0


class ObjectiveConfig(BaseModel):
    """The settings. `command` maps a suite to an argv; a suite that is not named runs pytest."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    command: dict[str, list[str]] = Field(default_factory=dict)
    report: Literal["junit"] = "junit"
    weights: dict[str, Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]] = Field(default_factory=dict)
    timeout_seconds: Annotated[int, Field(ge=1, le=MAX_TIMEOUT_SECONDS, strict=True)] = MAX_TIMEOUT_SECONDS

    @field_validator("command", "weights")
    @classmethod
    def _suites(cls, value: dict[str, object]) -> dict[str, object]:
        for suite in value:
            if suite not in SUITES:
                raise ValueError(f"{suite!r} is no suite; suites are {', '.join(SUITES)}")
        return value

    @field_validator("command")
    @classmethod
    def _argv(cls, value: dict[str, list[str]]) -> dict[str, list[str]]:
        for suite, argv in value.items():
            if not argv or not all(argv) or any("\0" in word for word in argv):
                raise ValueError(f"the command of {suite} must be a list of non-empty words")
        return value

    def weights_of(self, present: list[str]) -> dict[str, float]:
        """Weight of each present suite; they sum to 100. An absent suite is left out, never zero.

        With `weights` given, those of the present suites are scaled to 100; a present suite without one weighs 0.
        """
        if self.weights:
            raw = {suite: self.weights.get(suite, 0.0) for suite in present}
        else:
            hidden = [suite for suite in present if suite != VISIBLE]
            raw = {s: VISIBLE_WEIGHT if s == VISIBLE else HIDDEN_WEIGHT / len(hidden) for s in present}
        total = sum(raw.values())
        return {suite: weight * 100 / total for suite, weight in raw.items()} if total else raw


def parse_objective(text: bytes | None, file: str = FILE) -> ObjectiveConfig:
    """The settings in `text`; None gives the defaults. Raises FormatError with every problem."""
    return ObjectiveConfig() if text is None else validate(ObjectiveConfig, load_yaml(text, file), file)
