"""Every static check of the repository, run to the end, with one list of what failed.

Owns the list of checks and of the rooms under `mypy --strict`. Exit code 1 when any check fails; a missing tool is a
failure, never a skip.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
ROOMS = ("cli", "daemon", "formats", "images", "infra", "judges", "network", "records", "scheduler", "scripts")
MORE_TYPED = ("seccomp", "wire", "tools/gen_proto.py", "tools/lint.py", "tools/pulumi_language_host.py")
VETTED_GO = ("images/supervisor", "tools/netprobe", "tests/escape")
"""Go code of the product. Other tools under `tools/` are only formatted: vetting them compiles all of Cilium."""


def tracked(*patterns: str) -> list[str]:
    """Return files of the repository that match, tracked or new, ignored ones left out."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in listed if (REPOSITORY / name).exists()]


def shell_scripts() -> list[str]:
    """Return files that a shell reads: by suffix, or by their first line."""
    found = []
    for name in tracked("scripts/*", "tools/*", ".ci/*", "infra/*", "*.sh"):
        path = REPOSITORY / name
        with path.open("rb") as file:
            first = file.readline(80)
        if name.endswith(".sh") or (first.startswith(b"#!") and (b"bash" in first or b"/sh" in first)):
            found.append(name)
    return sorted(set(found))


def run(command: list[str], cwd: Path = REPOSITORY) -> str | None:
    """Run one check; return None if it passed, else its output."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else (done.stdout + done.stderr).strip() or f"exit code {done.returncode}"


def gofmt() -> str | None:
    """Return the Go files that are not formatted, else None."""
    files = tracked("*.go")
    done = subprocess.run(["gofmt", "-l", *files], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip() or None


def go_vet() -> str | None:
    """Vet the product's Go code."""
    problems = [run(["go", "vet", "./..."], REPOSITORY / directory) for directory in VETTED_GO]
    return "\n".join(problem for problem in problems if problem) or None


def checks() -> dict[str, Callable[[], str | None]]:
    """Return every check by name."""
    python = sys.executable
    typed = [room for room in (*ROOMS, *MORE_TYPED) if (REPOSITORY / room).exists()]
    dockerfiles = tracked("images/**/Dockerfile", "images/*/Dockerfile")
    return {
        "ruff check": lambda: run([str(BIN / "ruff"), "check", "--quiet", "--output-format", "concise", "."]),
        "ruff format": lambda: run([str(BIN / "ruff"), "format", "--check", "."]),
        "mypy --strict": lambda: run([str(BIN / "mypy"), *typed]),
        "import rules": lambda: run([str(BIN / "lint-imports"), "--no-cache"]),
        "buf lint": lambda: run([str(BIN / "buf"), "lint"]),
        "generated proto": lambda: run([python, "tools/gen_proto.py", "--check"]),
        "generated seccomp": lambda: run([python, "-m", "seccomp.generate", "--check"]),
        "hadolint": lambda: run([str(BIN / "hadolint"), *dockerfiles]),
        "shellcheck": lambda: run([str(BIN / "shellcheck"), "-x", *shell_scripts()]),
        "gofmt": gofmt,
        "go vet": go_vet,
    }


def main() -> int:
    """Run all checks, print each one's result, and return 1 if any failed."""
    failed = []
    for name, check in checks().items():
        begun = time.monotonic()
        try:
            problem = check()
        except OSError as missing:
            problem = f"cannot be run: {missing}; run scripts/setup"
        print(
            f"lint: {name:<18} {'ok' if problem is None else 'FAILED'} ({time.monotonic() - begun:.1f} s)", flush=True
        )
        if problem is not None:
            failed.append(name)
            print(problem, flush=True)
    if failed:
        print(f"lint: failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
