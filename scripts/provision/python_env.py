"""The project's Python environment `.venv`: made by uv from the hash-locked requirements, with our own entry
points.

Owns the environment only. Two files of ours lie in it: `gauntlet.pth`, which puts the repository and its
`proto/` on the path (generated code is imported by its proto path), and the launcher `bin/gauntlet`.
"""

import hashlib
import sys
from pathlib import Path

from scripts.provision.commands import ask, find, run
from scripts.provision.console import SetupError, say, slow_step
from scripts.provision.places import REPOSITORY, cache_directory, private_directory
from scripts.provision.versions import MINIMUM_PYTHON

ENVIRONMENT = REPOSITORY / ".venv"
LOCK = REPOSITORY / "requirements" / "dev.txt"
STAMP = ENVIRONMENT / "gauntlet-lock.sha256"
LAUNCHER = """#!{python}
\"\"\"The `gauntlet` command, written by setup.\"\"\"

import sys

from cli.main import app

sys.exit(app())
"""


def ensure_environment() -> Path:
    """Return the environment's python after bringing `.venv` to the locked state."""
    python = ENVIRONMENT / "bin" / "python"
    wanted = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if not (python.exists() and STAMP.exists() and STAMP.read_text(encoding="utf-8").strip() == wanted):
        _install(python)
        STAMP.write_text(wanted + "\n", encoding="utf-8")
    _write_if_changed(_site_packages(python) / "gauntlet.pth", f"{REPOSITORY}\n{REPOSITORY / 'proto'}\n", 0o644)
    _write_if_changed(ENVIRONMENT / "bin" / "gauntlet", LAUNCHER.format(python=python), 0o755)
    say("python", f"{(ask([str(python), '--version']) or '').strip()} with {LOCK.relative_to(REPOSITORY)} in .venv")
    return python


def _install(python: Path) -> None:
    if sys.version_info < MINIMUM_PYTHON:
        wanted = ".".join(map(str, MINIMUM_PYTHON))
        raise SetupError(f"Python {wanted} or newer is needed, this is {sys.version.split()[0]}", f"install {wanted}")
    uv = _uv()
    with slow_step("python", f"installing {LOCK.relative_to(REPOSITORY)} into .venv"):
        if not python.exists():
            run(
                [str(uv), "venv", "-q", "--python", sys.executable, str(ENVIRONMENT)],
                what="making .venv",
                remedy="remove .venv and run setup again",
            )
        run(
            [str(uv), "pip", "sync", "-q", "--require-hashes", "--python", str(python), str(LOCK)],
            what="installing the Python requirements",
            remedy="check that the Python package index is reachable, then run setup again",
        )


def _uv() -> Path:
    """Return uv: the machine's, else one from the package index in a small environment of its own."""
    tools = cache_directory() / "uv"
    found = find("uv") or (tools / "bin" / "uv")
    if ask([str(found), "--version"]) is not None:
        return found
    private_directory(cache_directory())
    with slow_step("python", "installing uv"):
        run(
            [sys.executable, "-m", "venv", str(tools)],
            what="making an environment for uv",
            remedy="install the system's python3-venv package (or uv itself) and run setup again",
        )
        run(
            [str(tools / "bin" / "pip"), "install", "-q", "uv"],
            what="installing uv",
            remedy="install uv by hand (https://docs.astral.sh/uv) and run setup again",
        )
    return tools / "bin" / "uv"


def _site_packages(python: Path) -> Path:
    printed = ask([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    if not printed:
        raise SetupError(f"{python} does not run", "remove .venv and run setup again")
    return Path(printed.strip())


def _write_if_changed(path: Path, text: str, mode: int) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
    path.chmod(mode)
