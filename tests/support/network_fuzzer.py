"""A child process that feeds mutated network files to the reader under limits of the kernel.

    python -m tests.support.network_fuzzer SEED SECONDS PROGRESS        until the time is over
    python -m tests.support.network_fuzzer SEED RUN                     that one run again, its inputs printed

Every run has its own generator, seeded by SEED and the run's number: what failed fails again without the runs
before it. Address space is limited by RLIMIT_AS (too much is a MemoryError, a crash), the CPU time of one run by a
timer whose signal kills. PROGRESS is a file that always holds the number of the run that is going on.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from network.check import Source, check
from network.cluster import ClusterError, read_cluster
from network.model import BACKENDS
from network.render.backend import Refused, render
from tests.support.network_mutations import Inputs, inputs

MEMORY_BYTES = 512 << 20
"""Of address space, libraries and threads included."""
PEAK_BYTES = 160 << 20
"""Of real memory: an interpreter, a few files of 3 MiB, and what the reader makes of the first MiB."""
RUN_CPU_SECONDS = 10
Target = Callable[[Inputs, dict[str, Any]], None]


def read_files(given: Inputs, seen: dict[str, Any]) -> None:
    """What is fuzzed: the readers, every text they say, and the renderers on what was accepted."""
    cluster = None
    try:
        cluster = read_cluster(given.cluster, "c.yaml") if given.cluster is not None else None
    except ClusterError as error:
        seen["cluster errors"] = seen.get("cluster errors", 0) + bool(str(error))
    outcome = check(
        Source(given.text, "f.yaml"),
        kind=given.kind,
        isolation=Source(given.isolation, "i.yaml") if given.isolation is not None else None,
        cluster=cluster,
        env={"SAMPLE_METADATA_MODE": "bridge", "WEB_PORT": "&x [*x]"},
        human_eval=given.human_eval,
    )
    json.dumps(outcome.to_json())
    for problem in [*outcome.report.problems, *outcome.report.warnings]:
        if not all(line.isprintable() for line in str(problem).split("\n")):
            raise AssertionError(f"unprintable: {str(problem)!a}")
        seen[problem.code] = seen.get(problem.code, 0) + 1
    seen["accepted"] = seen.get("accepted", 0) + outcome.ok
    for backend in BACKENDS if outcome.ok else ():
        try:
            render(outcome, backend)
        except Refused:
            seen["refused"] = seen.get("refused", 0) + 1


def spin(given: Inputs, seen: dict[str, Any]) -> None:
    """A target that hangs on some inputs: shows that a hang is found."""
    while b"services" in given.text:
        pass


def grow(given: Inputs, seen: dict[str, Any]) -> None:
    """A target that needs memory by its input: shows that greed is found."""
    if b"services" in given.text:
        json.dumps(list(range(1 << 26)))


def stumble(given: Inputs, seen: dict[str, Any]) -> None:
    """A target that crashes on some inputs: shows that a crash is found."""
    if b"&" in given.text:
        raise RecursionError("planted")


TARGETS: dict[str, Target] = {"read_files": read_files, "spin": spin, "grow": grow, "stumble": stumble}


def limited() -> None:
    """Give this process no more than its share, from now on."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def one(target: Target, seed: str, run: int, seen: dict[str, Any]) -> None:
    """One run under the CPU timer; SIGPROF's default action ends the process."""
    given = inputs(random.Random(f"{seed}:{run}"))
    signal.setitimer(signal.ITIMER_PROF, RUN_CPU_SECONDS)
    target(given, seen)
    signal.setitimer(signal.ITIMER_PROF, 0)


def peak_bytes() -> int:
    """The most memory that this program had: `ru_maxrss` would begin with what its parent had at the fork."""
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM:"))


def many(target: Target, seed: str, seconds: float, progress: str) -> None:
    """Runs until the time is over; prints what was seen."""
    started, run = time.monotonic(), 0
    seen: dict[str, Any] = {}
    file = os.open(progress, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        while time.monotonic() - started < seconds:
            os.pwrite(file, b"%-20d" % run, 0)
            one(target, seed, run, seen)
            run += 1
    finally:
        os.close(file)
    print(json.dumps({"runs": run, "peak_bytes": peak_bytes(), "seen": seen}))


def main(words: list[str]) -> None:
    """See the module's docstring; GAUNTLET_FUZZ_TARGET names another target."""
    target = TARGETS[os.environ.get("GAUNTLET_FUZZ_TARGET", "read_files")]
    limited()
    if len(words) == 3:
        many(target, words[0], float(words[1]), words[2])
    else:
        print(inputs(random.Random(f"{words[0]}:{int(words[1])}")))
        one(target, words[0], int(words[1]), {})


if __name__ == "__main__":
    main(sys.argv[1:])
