"""How a suite is run: the argv, the places, and the identifiers that a report must hold.

The default runner is pytest, started so that the judged tree steers nothing: the interpreter's own modules are found
first, the tree last; plugins are not loaded by entry point; configuration comes from the suite's directory. Each
test's result is also written at once to a progress file, so that a suite that is cut short keeps what it finished.
A suite with a `command` of its own runs that instead, `{report}` standing for the JUnit file it must write.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from formats.objective import VISIBLE, ObjectiveConfig

CHALLENGE = "/workspace/challenge"
HIDDEN_TESTS = "/scoring/hidden_tests"
RESULTS = "/results"
IMPORT_PATHS = (CHALLENGE, f"{CHALLENGE}/src")
ENVIRONMENT = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
# Runs in the judge sandbox. Imports what it needs before the judged tree is on the path.
BOOTSTRAP = """
import json, os, sys
sys.path[:] = [entry for entry in sys.path if entry]
import pytest
sys.path.extend(json.loads(sys.argv[1]))
class Progress:
    def __init__(self, path):
        self.file = open(path, "w", buffering=1) if path else None
    def pytest_runtest_logreport(self, report):
        if self.file and (report.when == "call" or report.outcome != "passed"):
            line = {"id": report.nodeid, "outcome": report.outcome, "seconds": report.duration}
            self.file.write(json.dumps(line) + "\\n")
sys.exit(pytest.main(sys.argv[3:], plugins=[Progress(sys.argv[2])]))
"""


@dataclass(frozen=True)
class SuiteRun:
    """One way to run one suite. `progress` is empty for a runner that writes none."""

    suite: str
    argv: tuple[str, ...]
    cwd: str
    report: str
    progress: str


def suite_run(suite: str, config: ObjectiveConfig) -> SuiteRun:
    """The command that runs a suite."""
    report = f"{RESULTS}/{suite}.xml"
    cwd, target = _place(suite)
    own = config.command.get(suite)
    if own is not None:
        argv = tuple(word.replace("{report}", report) for word in own)
        return SuiteRun(suite, argv, cwd, report, "")
    progress = f"{RESULTS}/{suite}.jsonl"
    return SuiteRun(suite, (*_pytest(progress), f"--junitxml={report}", *_options(cwd), target), cwd, report, progress)


def collect_argv(suite: str) -> tuple[str, ...]:
    """The command that lists a pytest suite's test ids without running one."""
    cwd, target = _place(suite)
    return (*_pytest(""), "--collect-only", "-q", *_options(cwd), target)


def collected_ids(stdout: str) -> list[str]:
    """Test ids in what `collect_argv` printed: one a line, up to the first empty one."""
    ids: list[str] = []
    for line in stdout.splitlines():
        if not line.strip():
            break
        if "::" in line:
            ids.append(junit_id(line.strip()))
    return ids


def junit_id(node_id: str) -> str:
    """`classname::name` as pytest's JUnit report writes a node id (pytest's own `mangle_test_address`)."""
    path, bracket, parameters = node_id.partition("[")
    names = path.split("::")
    names[0] = re.sub(r"\.py$", "", names[0].replace("/", "."))
    names[-1] += bracket + parameters
    return f"{'.'.join(names[:-1])}::{names[-1]}"


def _place(suite: str) -> tuple[str, str]:
    """Working directory and what to run in it."""
    if suite == VISIBLE:
        return CHALLENGE, "tests"
    return f"{HIDDEN_TESTS}/{suite}", "."


def _pytest(progress: str) -> tuple[str, ...]:
    return ("python3", "-s", "-c", BOOTSTRAP, json.dumps(IMPORT_PATHS), progress)


def _options(cwd: str) -> tuple[str, ...]:
    # One process, a fixed order: pytest runs tests as they stand in the files.
    return (
        f"--rootdir={cwd}",
        "--import-mode=importlib",
        "-p",
        "no:cacheprovider",
        "-o",
        "junit_family=xunit1",
        "-o",
        "junit_duration_report=call",
    )
