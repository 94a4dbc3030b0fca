"""Running the builder's tools, with a deadline and the tool's own last words in the error."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from images.stacks import ImageError

SECONDS = 1800.0
TAIL_LINES = 15


def run(
    command: Sequence[str], *, what: str, environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> str:
    """Run a tool and return its stdout.

    Raises:
        ImageError: it is missing, fails or takes longer than half an hour.
    """
    try:
        done = subprocess.run(
            list(command),
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except FileNotFoundError as missing:
        raise ImageError(f"{what}: {command[0]} is not installed; run scripts/setup") from missing
    except subprocess.TimeoutExpired as late:
        raise ImageError(f"{what}: no end after {SECONDS:.0f} s") from late
    if done.returncode != 0:
        tail = "\n    ".join((done.stdout + done.stderr).strip().splitlines()[-TAIL_LINES:])
        raise ImageError(f"{what} failed with exit code {done.returncode}:\n    {tail}")
    return done.stdout
