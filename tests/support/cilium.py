"""Cilium's own policy engine for tests: one process, asked many times (see `tools/cilium-verdict`)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tests.support.gobuild import CILIUM_VERDICT, built

END_SECONDS = 10


@dataclass(frozen=True)
class Verdict:
    """What the engine said of one flow; `error` is empty when it could judge."""

    egress: bool
    ingress: bool
    error: str


@dataclass(frozen=True)
class ObjectReport:
    """What the engine's parser said of one object: accepted when `error` is empty."""

    kind: str
    name: str
    error: str
    skipped: bool


class Engine:
    """A running engine. Use it as a context manager; it ends with its standard input."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [str(built(CILIUM_VERDICT))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(END_SECONDS)
        self._process.stdout.close()

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"cilium-verdict ended with {self._process.wait(END_SECONDS)}; its stderr says why")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def parse(self, objects: Iterable[Mapping[str, Any]]) -> list[ObjectReport]:
        """Validate objects as the agent would, without judging a flow."""
        return [ObjectReport(**report) for report in self._ask({"objects": list(objects)})["objects"]]

    def decide(
        self,
        objects: Iterable[Mapping[str, Any]],
        pods: Mapping[str, Mapping[str, Any]],
        peers: Mapping[str, Mapping[str, Any]],
        flows: Sequence[Mapping[str, Any]],
        cluster: str = "default",
    ) -> list[Verdict]:
        """Judge flows, in their order. Raises ValueError when the engine refuses an object."""
        request = {"cluster": cluster, "objects": list(objects), "pods": pods, "peers": peers, "flows": list(flows)}
        answer = self._ask(request)
        refused = [report for report in answer["objects"] if report["error"]]
        if refused:
            raise ValueError(f"Cilium refuses {refused}")
        return [Verdict(**verdict) for verdict in answer["verdicts"]]
