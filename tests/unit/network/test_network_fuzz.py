"""Sixty seconds of mutated network files: no crash, no hang, bounded memory.

A child process reads them, under the kernel's limits on address space and on the CPU time of one file; this side
judges how it ended. GAUNTLET_FUZZ_SEED sets the seed and GAUNTLET_FUZZ_SECONDS the time; a failure prints how to
run the one file again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from network.problems import REJECTIONS
from tests.support.network_fuzzer import PEAK_BYTES
from tests.support.network_mutations import CORPUS, inputs

SECONDS = float(os.environ.get("GAUNTLET_FUZZ_SECONDS", "60"))
SEED = os.environ.get("GAUNTLET_FUZZ_SEED", "20261130")
GRACE_SECONDS = 120
ROOT = Path(__file__).parents[3]


def fuzz(tmp_path: Path, seconds: float, target: str = "read_files") -> tuple[int, str, str]:
    """(exit code, output, what to print on a failure) of one child."""
    progress = tmp_path / "progress"
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.network_fuzzer", SEED, str(seconds), str(progress)],
        cwd=ROOT, env={**os.environ, "GAUNTLET_FUZZ_TARGET": target}, capture_output=True, text=True,
        timeout=seconds + GRACE_SECONDS, check=False,
    )  # fmt: skip
    run = progress.read_text().strip() if progress.exists() else "0"
    again = f"python -m tests.support.network_fuzzer {SEED} {run}"
    return done.returncode, done.stdout, f"seed {SEED}, run {run}; again: {again}\n{done.stderr[-4000:]}"


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + GRACE_SECONDS + 60)
def test_mutated_files_never_crash_hang_or_grow(tmp_path: Path) -> None:
    code, output, told = fuzz(tmp_path, SECONDS)
    print(told)
    assert code == 0, told
    found: dict[str, Any] = json.loads(output)
    print(f"{found['runs']} runs, {found['peak_bytes'] >> 20} MiB, {found['seen']}")
    assert 0 < found["peak_bytes"] < PEAK_BYTES
    # The files were no noise: some passed and rendered, and nearly every rejection was met.
    assert found["runs"] > 100
    if SECONDS >= 60:
        assert found["seen"]["accepted"] and found["seen"]["refused"] and found["seen"]["cluster errors"]
        assert len(set(found["seen"]) & set(REJECTIONS)) >= 30


@pytest.mark.slow
@pytest.mark.timeout(2 * GRACE_SECONDS)
@pytest.mark.parametrize(
    ("target", "code", "words"),
    [("stumble", 1, "RecursionError: planted"), ("grow", 1, "MemoryError"), ("spin", -signal.SIGPROF, "")],
)
def test_a_crash_a_hang_and_greed_are_found_and_say_how_to_run_them_again(
    tmp_path: Path, target: str, code: int, words: str
) -> None:
    ended, _, told = fuzz(tmp_path, 60, target)
    assert ended == code and words in told
    run = int(told.partition("run ")[2].partition(";")[0])
    assert f"tests.support.network_fuzzer {SEED} {run}" in told
    text = inputs(random.Random(f"{SEED}:{run}")).text
    assert (b"&" if target == "stumble" else b"services") in text, "the run is not the one that failed"


def test_inputs_depend_on_the_seed_alone() -> None:
    for run in range(200):
        assert inputs(random.Random(f"s:{run}")) == inputs(random.Random(f"s:{run}"))
    texts = {inputs(random.Random(f"s:{run}")).text for run in range(200)}
    assert len(texts) > 150 and not texts <= set(CORPUS.values())
