"""A private PostgreSQL cluster for tests: real server, a unix socket in a temporary directory, ended by its pid.

The server refuses to run as root, so as root it is started as `postgres`, or `nobody` where that user is missing.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

REMEDY = "PostgreSQL server binaries are missing; install Debian's package `postgresql`"
START_SECONDS = 60
# The processes of a killed server end by themselves, each when it looks; until then no new one starts.
STILL_RUNNING = "pre-existing shared memory block"


def binaries() -> Path:
    """The directory of initdb and postgres, the newest version's. Raises RuntimeError with the remedy."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    if on_path is None:
        raise RuntimeError(REMEDY)
    return Path(on_path).resolve().parent


class Cluster:
    """A running cluster. `new_database` gives a URL of a fresh database in it."""

    def __init__(self) -> None:
        self._bin = binaries()
        self._root = Path(tempfile.mkdtemp(prefix="gpg-", dir="/tmp"))  # a short path: it holds a unix socket
        self._user = self._account()
        if self._user is not None:
            os.chown(self._root, self._user.pw_uid, self._user.pw_gid)
        self._data, self._log = self._root / "data", self._root / "log"
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def _account() -> pwd.struct_passwd | None:
        if os.geteuid() != 0:
            return None
        for name in ("postgres", "nobody"):
            with contextlib.suppress(KeyError):
                return pwd.getpwnam(name)
        raise RuntimeError("neither user `postgres` nor `nobody` exists to run the server as")

    def _as_user(self) -> dict[str, object]:
        if self._user is None:
            return {}
        return {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}

    def initialise(self) -> None:
        """Make the cluster's files."""
        command = [self._bin / "initdb", "-D", self._data, "-U", "owner", "-A", "trust", "-N", "-E", "UTF8"]
        subprocess.run(
            [*command, "--locale=C"],
            check=True,
            cwd=self._root,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            **self._as_user(),  # type: ignore[call-overload]
        )

    def start(self) -> None:
        """Start the server and wait until it answers; what a killed one left running is waited for."""
        deadline = time.monotonic() + START_SECONDS
        said = self._log.stat().st_size if self._log.exists() else 0
        self._process = self._started()
        while True:
            try:
                psycopg.connect(self._conninfo("postgres")).close()
                return
            except psycopg.OperationalError:
                told = self._log.read_bytes()[said:].decode(errors="replace")
                ended = self._process.poll() is not None
                if time.monotonic() > deadline or (ended and STILL_RUNNING not in told):
                    raise RuntimeError(f"PostgreSQL did not start: {told[-2000:]}") from None
                if ended:
                    said += len(told.encode())
                    self._process = self._started()
                time.sleep(0.05)

    def _started(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            started: subprocess.Popen[bytes] = subprocess.Popen(
                [self._bin / "postgres", "-D", self._data, "-k", self._root, "-h", "", "-c", "shared_buffers=32MB"],
                cwd=self._root,
                stdout=log,
                stderr=log,
                **self._as_user(),  # type: ignore[call-overload]
            )
        return started

    @property
    def pid(self) -> int:
        """The running postmaster's."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """kill -9 of the postmaster; its children follow by themselves."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the server and remove its files."""
        self._end(signal.SIGQUIT)
        shutil.rmtree(self._root)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
        if self._process is not None:
            self._process.wait(timeout=30)

    def _conninfo(self, database: str, user: str = "owner") -> str:
        return f"host={self._root} user={user} dbname={database}"

    def new_database(self) -> str:
        """A fresh database's SQLAlchemy URL, its owner connected."""
        name = f"t{uuid.uuid4().hex}"
        with psycopg.connect(self._conninfo("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")  # type: ignore[call-overload]
        return self.url(name)

    def url(self, database: str, user: str = "owner") -> str:
        """The SQLAlchemy URL of one of its databases."""
        return f"postgresql+psycopg://{user}@/{database}?host={self._root}"


@pytest.fixture(scope="module")
def postgres_cluster() -> Iterator[Cluster]:
    """One cluster a module of tests; conftest files of those who need it import this fixture.

    Not one a session: it would live on while the session's last test looks for what is left.
    """
    cluster = Cluster()
    try:
        cluster.initialise()
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
