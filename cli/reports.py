"""`gauntlet attempt report`: the judges' documents, for operators. Hidden tests' names and messages are in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gauntlet.scheduler.v1 import scheduler_service_pb2 as pb
from rich.table import Table
from rich.text import Text

from cli import views
from cli.attempts import AttemptId
from cli.clients import Services, services
from cli.options import Endpoint, Json, endpoint_of
from cli.plain import safe
from cli.running import answers, print_json, run

TEST_RESULTS = "test_results.json"
SUITE_COLUMNS = ["suite", "weight", "passed", "score", "problem"]
MESSAGE_LINES = 3
Documents = dict[str, dict[str, Any]]


def report(attempt_id: AttemptId, as_json: Json = False, endpoint: Endpoint = None) -> None:
    """Print what the judges found: every suite, and each test that failed. For operators, not for agents."""

    async def work() -> None:
        async with services(endpoint_of(endpoint)) as to:
            documents = await fetch(to, attempt_id)
        if as_json:
            print_json(documents)
            return
        for judge, files in documents.items():
            for name, value in files.items():
                answers.print(Text.assemble((judge, "bold"), " ", (name, "dim")))
                _show(name, value)

    run(work, endpoint_of(endpoint))


async def fetch(to: Services, attempt_id: str) -> Documents:
    """`{judge: {file name: document}}`; what is no JSON stands as text. Raises grpc.RpcError."""
    collected: dict[tuple[str, str], bytearray] = {}
    async for piece in to.scheduler.GetReport(pb.GetReportRequest(attempt_id=attempt_id), timeout=60.0):
        collected.setdefault((piece.judge, piece.name), bytearray()).extend(piece.chunk)
    documents: Documents = {}
    for (judge, name), data in collected.items():
        documents.setdefault(judge, {})[name] = _document(bytes(data))
    return documents


def _document(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace")


def _show(name: str, value: Any) -> None:
    if name == TEST_RESULTS and isinstance(value, dict) and isinstance(value.get("suites"), dict):
        answers.print(_suites(value["suites"]))
        for line in failed_lines(value["suites"]):
            answers.print(Text(safe(line)), soft_wrap=True)
        answers.print(f"score {value.get('score')}")
    elif isinstance(value, str):
        answers.print(Text(safe(value)), soft_wrap=True)
    else:
        answers.print(Text(safe(json.dumps(value, indent=2, ensure_ascii=False))), soft_wrap=True)


def _suites(suites: Mapping[str, Any]) -> Table:
    rows = [
        {
            "suite": name,
            "weight": f"{suite['weight']:g}",
            "passed": f"{suite['passed']}/{suite['total']}",
            "score": f"{suite['score']:g}",
            "problem": suite.get("problem") or None,
        }
        for name, suite in suites.items()
    ]
    return views.table("Suites", rows, SUITE_COLUMNS)


def failed_lines(suites: Mapping[str, Any]) -> list[str]:
    """Every test that did not pass, with the beginning of its message; plain text, without control characters."""
    lines: list[str] = []
    for name, suite in suites.items():
        for test in suite["tests"]:
            if test["outcome"] == "passed":
                continue
            lines.append(_plain(f"  {name}: {test['id']} {test['outcome']}"))
            said = str(test.get("message") or "").splitlines()
            lines.extend(_plain(f"      {line}") for line in said[:MESSAGE_LINES])
    return lines


def _plain(text: str) -> str:
    """Messages come from tests that ran the agent's code: they must not command a terminal."""
    return "".join(char if char.isprintable() else "�" for char in text)
