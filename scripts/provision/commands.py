"""Running other programs: always with a deadline, output kept for the error message.

Owns subprocess handling only; what to run is decided by the callers.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.provision.console import SetupError
from scripts.provision.places import bin_directory

QUICK_SECONDS = 60.0
LONG_SECONDS = 1800.0
TAIL_LINES = 15


def find(program: str) -> Path | None:
    """Return the program's path from our bin directory or PATH, system directories included, else None."""
    path = os.pathsep.join([str(bin_directory()), os.environ.get("PATH", ""), "/usr/local/sbin:/usr/sbin:/sbin"])
    found = shutil.which(program, path=path)
    return Path(found) if found else None


def ask(command: Sequence[str], seconds: float = QUICK_SECONDS) -> str | None:
    """Return the stdout of a quick question, or None if the program is missing, fails or takes too long."""
    try:
        answer = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None  # "cannot be asked" is the answer; the caller words it
    return answer.stdout


def run(
    command: Sequence[str],
    *,
    what: str,
    remedy: str,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    seconds: float = LONG_SECONDS,
) -> None:
    """Run a command that must succeed.

    Args:
        command: the program and its arguments.
        what: what it is for, in words, used in the error.
        remedy: the one thing to do when it fails.
        cwd: directory to run in.
        environment: additions to this process's environment.
        seconds: the deadline.

    Raises:
        SetupError: with the last lines of output.
    """
    try:
        done = subprocess.run(
            list(command),
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except FileNotFoundError as missing:
        raise SetupError(f"{what}: {command[0]} is not installed ({missing})", remedy) from missing
    except subprocess.TimeoutExpired as late:
        raise SetupError(f"{what}: no end after {seconds:.0f} s: {' '.join(command)}", remedy) from late
    if done.returncode != 0:
        tail = "\n    ".join(done.stdout.strip().splitlines()[-TAIL_LINES:])
        raise SetupError(f"{what} failed with exit code {done.returncode}:\n    {tail}", remedy)
