"""The objective judge: visible and hidden suites against the agent's final tree, in a fresh container.

First the expected test ids, collected where no agent code is; then every suite on the final tree. A failure before
agent code may have run voids the judging; from then on whatever is missing counts as failed.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from dataclasses import dataclass

import grpc
import structlog
from gauntlet.daemon.v1 import judge_sandbox_service_pb2 as pb
from gauntlet.daemon.v1 import judge_sandbox_service_pb2_grpc as pb_grpc

from judges import runner, scoring
from judges.errors import JudgingFault
from judges.package import JudgedChallenge
from judges.reports import MAX_REPORT_BYTES, Case, ReportUnreadable, parse_junit, parse_progress
from judges.runner import ENVIRONMENT, SuiteRun
from judges.sandbox import JudgeSandboxClient, judge_sandbox
from wire import errors

log = structlog.get_logger(__name__)

COLLECT_TIMEOUT = 60.0
KEPT_CHALLENGES = 64


@dataclass(frozen=True)
class ObjectiveVerdict:
    """What the objective judge found; `score` is None when the challenge has no tests at all."""

    score: float | None
    container_id: str
    seconds: float
    documents: dict[str, bytes]


class ObjectiveJudge:
    """Judges attempts; keeps the expected ids of challenges it has seen."""

    def __init__(self) -> None:
        self._expected: OrderedDict[str, dict[str, list[str]]] = OrderedDict()

    async def judge(
        self, stub: pb_grpc.JudgeSandboxServiceStub, attempt_id: str, digest: str, challenge: JudgedChallenge
    ) -> ObjectiveVerdict:
        """Judge one attempt. Raises JudgingFault."""
        began = time.monotonic()
        try:
            expected = await self._expected_ids(stub, attempt_id, digest, challenge)
            if not any(expected.values()):
                return ObjectiveVerdict(None, "", time.monotonic() - began, {})
            async with judge_sandbox(stub, attempt_id, pb.JUDGE_WORKSPACE_FINAL) as box:
                results = await _run_suites(box, challenge, expected)
        except grpc.RpcError as error:
            raise JudgingFault(f"the daemon failed during the judging: {errors.decode(error)}") from error
        score = scoring.objective_score(results, challenge.objective)
        document = scoring.test_results(results, challenge.objective, score)
        log.info("objective_judged", attempt_id=attempt_id, score=score)
        documents = {"test_results.json": json.dumps(document, indent=1).encode()}
        return ObjectiveVerdict(score, box.container_id, time.monotonic() - began, documents)

    async def _expected_ids(
        self, stub: pb_grpc.JudgeSandboxServiceStub, attempt_id: str, digest: str, challenge: JudgedChallenge
    ) -> dict[str, list[str]]:
        """Test ids of every suite, from the challenge alone."""
        if digest not in self._expected:
            async with judge_sandbox(stub, attempt_id, pb.JUDGE_WORKSPACE_REFERENCE) as box:
                found = {suite: await _collect(box, suite, challenge) for suite in challenge.suites}
            self._expected[digest] = {suite: ids for suite, ids in found.items() if ids}
            while len(self._expected) > KEPT_CHALLENGES:
                self._expected.popitem(last=False)
        self._expected.move_to_end(digest)
        return self._expected[digest]


async def _collect(box: JudgeSandboxClient, suite: str, challenge: JudgedChallenge) -> list[str]:
    run = runner.suite_run(suite, challenge.objective)
    if suite in challenge.objective.command:
        # A runner of the challenge's own cannot list its tests: what it reports on the reference is expected.
        result = await box.run(run.argv, cwd=run.cwd, timeout=COLLECT_TIMEOUT, environment=ENVIRONMENT)
        report = await box.read(run.report, MAX_REPORT_BYTES)
        if report is None:
            raise JudgingFault(f"suite {suite}: its command wrote no {run.report} on the reference ({result.problem})")
        try:
            return [case.test_id for case in parse_junit(report)]
        except ReportUnreadable as error:
            raise JudgingFault(f"suite {suite} on the reference: {error}") from error
    argv = runner.collect_argv(suite)
    result = await box.run(argv, cwd=run.cwd, timeout=COLLECT_TIMEOUT, environment=ENVIRONMENT)
    if result.exit_code == 5:  # pytest: no tests were collected
        return []
    if result.exit_code != 0:
        words = result.problem or bytes(result.stdout[-1_000:]).decode(errors="replace")
        raise JudgingFault(f"suite {suite} cannot be collected without agent code: {words}")
    return runner.collected_ids(result.stdout.decode(errors="replace"))


async def _run_suites(
    box: JudgeSandboxClient, challenge: JudgedChallenge, expected: dict[str, list[str]]
) -> list[scoring.SuiteResult]:
    """Every suite in turn; all together have the configured time."""
    deadline = time.monotonic() + challenge.objective.timeout_seconds
    results: list[scoring.SuiteResult] = []
    dead = ""
    for suite, ids in expected.items():
        left = deadline - time.monotonic()
        if dead or left <= 0:
            problem = dead or "the time limit of the suites was reached"
            results.append(scoring.judge_suite(suite, ids, [], problem))
            continue
        run = runner.suite_run(suite, challenge.objective)
        result = await box.run(run.argv, cwd=run.cwd, timeout=left, environment=ENVIRONMENT)
        if result.sandbox_died:
            dead = result.problem
            results.append(scoring.judge_suite(suite, ids, [], dead))
            continue
        cases, problem = await _cases(box, run, result.problem)
        results.append(scoring.judge_suite(suite, ids, cases, problem))
    return results


async def _cases(box: JudgeSandboxClient, run: SuiteRun, problem: str) -> tuple[list[Case], str]:
    """The report's cases; where there is none, what the progress file says was finished."""
    report = await box.read(run.report, MAX_REPORT_BYTES)
    try:
        if report is None:
            raise ReportUnreadable("there is no report")
        return parse_junit(report), problem
    except ReportUnreadable as error:
        progress = await box.read(run.progress, MAX_REPORT_BYTES) if run.progress else None
        return parse_progress(progress or b""), problem or str(error)
