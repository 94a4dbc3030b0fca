"""The judge worker's settings: one JSON file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class JudgeConfig(BaseModel):
    """Everything one judge worker needs to know."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    worker_id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
    scheduler_endpoint: str
    parallel: Annotated[int, Field(ge=1, le=64)] = 1


def load(path: Path) -> JudgeConfig:
    """The settings of a file. Raises OSError, pydantic.ValidationError."""
    return JudgeConfig.model_validate_json(path.read_bytes())
