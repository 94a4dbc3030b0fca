"""The installation of one instance: the services' user, directories, code by digest, interpreter, token key.

What lasts (ledger, events, artifacts) is kept when the installation is deleted: an audit ledger does not end with a
`destroy`. Code, interpreter, keys and sockets go.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import secrets
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.local.kinds.base import Kind, ResourceFailed, State
from infra.local.places import Places

REPOSITORY = Path(__file__).resolve().parents[3]
USER = "gauntlet"
# What services run; tests, tools and infrastructure stay in the repository.
CODE = (
    "daemon",
    "scheduler",
    "judges",
    "formats",
    "network",
    "records",
    "wire",
    "proto/gauntlet",
    "infra/local/keeper.py",
    # For agent commands, which run unprivileged and may not be able to read the repository.
    "cli",
)
LOCK = "requirements/runtime.txt"
MINIMUM_PYTHON = (3, 11)
INSTALL_SECONDS = 600


def code_files(repository: Path = REPOSITORY) -> list[Path]:
    """Every file that is installed, relative, sorted."""
    found: list[Path] = []
    for name in CODE:
        path = repository / name
        inside = [path] if path.is_file() else path.rglob("*")
        found.extend(f.relative_to(repository) for f in inside if f.is_file() and "__pycache__" not in f.parts)
    return sorted(found)


def code_digest(repository: Path = REPOSITORY) -> str:
    """`sha256:…` over the names and bytes of what is installed, the lock file included."""
    digest = hashlib.sha256()
    for path in [*code_files(repository), Path(LOCK)]:
        data = (repository / path).read_bytes()
        digest.update(f"{path}\0{len(data)}\0".encode() + data)
    return f"sha256:{digest.hexdigest()}"


class Installation(Kind):
    """`gauntlet:local:Installation`."""

    outputs = ("code", "python", "gid")
    inputs = ("instance", "code_digest")
    replaced_by = ("instance",)

    def create(self, inputs: Mapping[str, Any]) -> tuple[str, State]:
        """Make user, directories, key; install code and interpreter."""
        if os.geteuid() != 0:
            raise ResourceFailed("the local environment mounts file systems and starts services: run as root (sudo)")
        places = Places(inputs["instance"])
        user = _ensure_user()
        _ensure_directories(places, user)
        python = _ensure_interpreter(places)
        code = _ensure_code(places, inputs["code_digest"], python)
        _ensure_launcher(places, code, python)
        return inputs["instance"], {**inputs, "code": str(code), "python": str(python), "gid": user.pw_gid}

    def read(self, resource_id: str, state: Mapping[str, Any]) -> State | None:
        """There while code, interpreter and key are."""
        places = Places(state["instance"])
        parts = (Path(state["code"]), Path(state["python"]), places.token_key, places.run)
        return dict(state) if all(part.exists() for part in parts) else None

    def delete(self, resource_id: str, state: Mapping[str, Any]) -> None:
        """Remove what is not a record."""
        places = Places(state["instance"])
        for path in (places.code, places.bin, places.services, places.keys, places.panic_logs, places.run):
            shutil.rmtree(path, ignore_errors=False) if path.exists() else None


def _ensure_user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        command = ["useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", USER]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode != 0:
            raise ResourceFailed(f"user {USER} cannot be made: {done.stderr.strip()}; make it by hand") from None
        return pwd.getpwnam(USER)


def _ensure_directories(places: Places, user: pwd.struct_passwd) -> None:
    """Closed to everybody who has no business there; a directory of somebody else's is refused."""
    for path, mode, uid, gid in (
        (places.state.parent, 0o711, 0, 0),
        (places.state, 0o711, 0, 0),
        (places.code, 0o755, 0, 0),
        (places.services, 0o711, 0, 0),
        (places.keys, 0o750, 0, user.pw_gid),
        (places.panic_logs, 0o700, 0, 0),
        (places.state / "scheduler", 0o700, user.pw_uid, user.pw_gid),
        (places.state / "records", 0o700, user.pw_uid, user.pw_gid),
        (places.run.parent, 0o755, 0, 0),
        # Services make their sockets here; nobody can remove another's.
        (places.run, 0o1775, 0, user.pw_gid),
    ):
        path.mkdir(exist_ok=True)
        if path.is_symlink() or path.stat().st_uid not in (0, uid):
            raise ResourceFailed(f"{path} belongs to uid {path.stat().st_uid}: move it away")
        os.chown(path, uid, gid)
        path.chmod(mode)
    if not places.token_key.exists():
        fresh = places.token_key.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_bytes(secrets.token_bytes(32))
        os.chown(fresh, 0, user.pw_gid)
        fresh.chmod(0o640)
        fresh.replace(places.token_key)


def _ensure_code(places: Places, digest: str, python: Path) -> Path:
    if code_digest() != digest:
        raise ResourceFailed("the code changed while `pulumi up` ran: run it again")
    target = places.code / digest.removeprefix("sha256:")[:16]
    if not target.exists():
        fresh = places.code / f".new-{secrets.token_hex(8)}"
        try:
            for path in code_files():
                (fresh / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(REPOSITORY / path, fresh / path)
            subprocess.run([python, "-m", "compileall", "-q", str(fresh)], check=True, timeout=INSTALL_SECONDS)
            for path in (fresh, *fresh.rglob("*")):
                path.chmod(0o755 if path.is_dir() else 0o644)
            fresh.rename(target)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return target


def _ensure_launcher(places: Places, code: Path, python: Path) -> None:
    """`bin/gauntlet`: the command line as everybody may run it, from the installed code."""
    places.bin.mkdir(mode=0o755, exist_ok=True)
    places.bin.chmod(0o755)
    path = places.bin / "gauntlet"
    fresh = path.with_suffix(".new")
    fresh.write_text(
        f"#!{python}\nimport sys\nsys.path[:0] = [{str(code)!r}, {str(code / 'proto')!r}]\n"
        "from cli.main import app\napp()\n"
    )
    fresh.chmod(0o755)
    fresh.replace(path)


def _ensure_interpreter(places: Places) -> Path:
    """A virtual environment with the locked requirements, on a Python that the services' user can reach."""
    lock = (REPOSITORY / LOCK).read_bytes()
    base = _reachable_python()
    key = hashlib.sha256(lock + str(base).encode()).hexdigest()[:16]
    target = places.code / f"venv-{key}"
    python = target / "bin" / "python"
    if not (target / "complete").exists():
        shutil.rmtree(target, ignore_errors=True)
        uv = str(Path(sys.executable).parent / "uv")
        for command in (
            [uv, "venv", "-q", "--python", str(base), str(target)],
            [uv, "pip", "sync", "-q", "--python", str(python), "--require-hashes", "--link-mode=copy",
             "--compile-bytecode", str(REPOSITORY / LOCK)],
        ):  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS)
            if done.returncode != 0:
                raise ResourceFailed(f"the services' Python environment cannot be made: {done.stderr.strip()[-1500:]}")
        (target / "complete").touch()
    return python


def _reachable_python() -> Path:
    for candidate in (Path("/usr/bin/python3"), Path("/usr/local/bin/python3"), Path(sys.executable).resolve()):
        if candidate.exists() and _open_to_all(candidate.resolve()) and _version(candidate) >= MINIMUM_PYTHON:
            return candidate
    raise ResourceFailed(
        "no Python 3.11 or newer that an unprivileged user can reach: install python3 for the whole machine "
        "(Debian: apt-get install python3)"
    )


def _open_to_all(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o001 for parent in path.parents)


def _version(python: Path) -> tuple[int, int]:
    code = "import sys; print(*sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False, timeout=30)
    parts = done.stdout.split()
    return (int(parts[0]), int(parts[1])) if done.returncode == 0 and len(parts) == 2 else (0, 0)
