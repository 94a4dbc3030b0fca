"""The judges' results: checked where they arrive, packed for the database, read back for the record. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from gauntlet.scheduler.v1 import judging_service_pb2 as judging_pb
from pydantic import BaseModel, ConfigDict, TypeAdapter

from formats.canonical import digest
from formats.record import JUDGES
from scheduler.errors import BadInput
from scheduler.scores import WEIGHTS

VERDICTS = ("pass", "flag", "fail")


class Result(BaseModel):
    """One judge's result. `score` is 0-100 or None; `documents` maps names to `sha256:…` digests."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    judge: str
    score: float | None
    verdict: Literal["pass", "flag", "fail"] | None
    container_id: str
    duration_ms: int
    documents: dict[str, str]


_RESULTS: TypeAdapter[list[Result]] = TypeAdapter(list[Result])


def check_results(results: Sequence[judging_pb.JudgeResult]) -> list[Result]:
    """The results as they are kept, in the judges' order. Raises BadInput with every violation.

    None at all is a result too: a challenge without tests leaves the objective judge nothing to run.
    """
    problems: list[tuple[str, str]] = []
    names = [result.judge for result in results]
    for index, result in enumerate(results):
        where = f"results[{index}]"
        if result.judge not in JUDGES:
            problems.append((f"{where}.judge", f"{result.judge!r} is none of {', '.join(JUDGES)}"))
        elif names.count(result.judge) > 1:
            problems.append((f"{where}.judge", f"{result.judge} appears more than once"))
        problems.extend((f"{where}.{name}", problem) for name, problem in _finding(result))
    if problems:
        raise BadInput(*problems)
    packed = [
        Result(
            judge=result.judge,
            score=result.score if result.HasField("score") else None,
            verdict=_verdict(result.verdict),
            container_id=result.container_id,
            duration_ms=result.run_duration.ToMilliseconds(),
            documents={name: digest(content) for name, content in sorted(result.documents.items())},
        )
        for result in results
    ]
    return sorted(packed, key=lambda result: JUDGES.index(result.judge))


def pack_results(results: Sequence[Result]) -> bytes:
    """The database's form."""
    return _RESULTS.dump_json(list(results))


def unpack_results(packed: bytes | None) -> list[Result]:
    """The results behind `pack_results`' bytes; none for None."""
    return _RESULTS.validate_json(packed) if packed is not None else []


def _finding(result: judging_pb.JudgeResult) -> list[tuple[str, str]]:
    if result.HasField("score") == bool(result.verdict):
        return [("score", "give either a score or a verdict")]
    if result.verdict and (result.verdict not in VERDICTS or result.judge in WEIGHTS):
        return [("verdict", f"{result.verdict!r} from {result.judge}: verdicts are {', '.join(VERDICTS)}, integrity's")]
    if result.HasField("score"):
        if result.judge not in WEIGHTS:
            return [("score", f"{result.judge} gives a verdict, not a score")]
        if not (math.isfinite(result.score) and 0 <= result.score <= 100):
            return [("score", f"{result.score} is not 0-100")]
    return []


def _verdict(text: str) -> Literal["pass", "flag", "fail"] | None:
    match text:
        case "pass" | "flag" | "fail":
            return text
        case _:
            return None
