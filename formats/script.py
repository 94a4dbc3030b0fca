"""A scripted agent: JSON lines, each one call of the public API. The end of the file submits.

Owns the schema. Playing a script is the command line's work.
"""

from __future__ import annotations

import base64
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator, model_validator

from formats.problems import FormatError, Problem

MAX_LINE_BYTES = 64 * 1024 * 1024


class _Step(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ExecStep(_Step):
    """Run a command. `timeout_seconds` is unset for none."""

    tool: Literal["exec"]
    argv: Annotated[list[str], Field(min_length=1)]
    cwd: str | None = None
    stdin: str | None = None
    timeout_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class WriteFileStep(_Step):
    """Write a file, from text or from base64."""

    tool: Literal["write_file"]
    path: Annotated[str, Field(min_length=1)]
    content: str | None = None
    content_base64: str | None = None

    @field_validator("content_base64")
    @classmethod
    def _base64(cls, value: str | None) -> str | None:
        if value is not None:
            base64.b64decode(value, validate=True)
        return value

    @model_validator(mode="after")
    def _one(self) -> WriteFileStep:
        if (self.content is None) == (self.content_base64 is None):
            raise ValueError("give exactly one of content and content_base64")
        return self

    def data(self) -> bytes:
        """The bytes to write."""
        if self.content_base64 is not None:
            return base64.b64decode(self.content_base64)
        return (self.content or "").encode()


class ReadFileStep(_Step):
    """Read a file."""

    tool: Literal["read_file"]
    path: Annotated[str, Field(min_length=1)]


class WaitStep(_Step):
    """Do nothing for a while."""

    tool: Literal["wait"]
    seconds: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]


class SubmitStep(_Step):
    """Submit; what follows is not played."""

    tool: Literal["submit"]


Step = ExecStep | WriteFileStep | ReadFileStep | WaitStep | SubmitStep
_STEP: TypeAdapter[Step] = TypeAdapter(Annotated[Step, Field(discriminator="tool")])


def parse_script(text: bytes, file: str) -> list[Step]:
    """The steps of a script; blank lines are skipped. Raises FormatError with one problem per bad line."""
    steps: list[Step] = []
    problems: list[Problem] = []
    for number, line in enumerate(text.split(b"\n"), start=1):
        if not line.strip():
            continue
        key = f"line {number}"
        try:
            steps.append(_STEP.validate_python(_object(line)))
        except ValidationError as error:
            for item in error.errors():
                where = ".".join(str(part) for part in item["loc"][1:])
                problems.append(
                    Problem(file, f"{key}{': ' + where if where else ''}", item["msg"], "see docs/formats.md")
                )
        except ValueError as error:
            problems.append(Problem(file, key, str(error), "write one JSON object a line"))
    if problems:
        raise FormatError(problems)
    return steps


def _object(line: bytes) -> Any:
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"is {len(line)} bytes, {MAX_LINE_BYTES} at most")
    try:
        value = json.loads(line)
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("holds half a character (a lone surrogate); bytes go into content_base64") from None
    return value
