"""The scheduler's settings: one JSON or TOML file. Says what is wrong with the file, the key and the remedy.

Database settings are a SQLite file's path or an SQLAlchemy URL. Directories must exist with a mode that shuts out
others; who makes them is the deployment's matter.
"""

from __future__ import annotations

import json
import stat
import tomllib
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from formats.problems import FormatError, Problem, validate
from scheduler.limits import Limits
from wire.server import socket_path

Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]


class SchedulerConfig(BaseModel):
    """The settings.

    `operator_group` and `agent_socket_mode` say who may open the sockets: the operator's socket is 0660 for that group
    (0600 without one), the agents' may be opened by anyone who has a token.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    state_dir: Path
    operator_endpoint: str
    agent_endpoint: str
    token_key_file: Path
    control_db: str | None = None
    events_db: str
    audit_db: str
    challenge_dir: Path | None = None
    operator_group: int | None = None
    limits: Limits = Limits()
    node_lease_seconds: Seconds = 30.0
    node_stale_seconds: Seconds = 15.0
    tick_seconds: Seconds = 1.0
    ending_seconds: Seconds = 600.0
    judging_lease_seconds: Seconds = 60.0
    judging_retry_seconds: Seconds = 2.0

    @field_validator("operator_endpoint", "agent_endpoint")
    @classmethod
    def _endpoint(cls, value: str) -> str:
        socket_path(value)
        return value

    @property
    def control_database(self) -> str:
        """Where the control database is."""
        return self.control_db or str(self.state_dir / "control.db")

    @property
    def challenges(self) -> Path:
        """Where packages are kept."""
        return self.challenge_dir or self.state_dir / "challenges"


def load_config(path: Path) -> SchedulerConfig:
    """The settings in a `.json` or `.toml` file. Raises FormatError with every problem."""
    return validate(SchedulerConfig, _read(path), str(path))


def check_private(directory: Path) -> None:
    """Raise FormatError unless `directory` exists and no other user may enter it."""
    if not directory.is_dir():
        raise FormatError([Problem(str(directory), "", "is no directory", "make it, mode 0700, owned by this user")])
    mode = stat.S_IMODE(directory.stat().st_mode)
    if mode & 0o007:
        raise FormatError([Problem(str(directory), "", f"may be entered by others (mode {mode:o})", "chmod o= it")])


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise FormatError(
            [Problem(str(path), "", error.strerror or "cannot be read", "name a settings file")]
        ) from error
    try:
        if path.suffix == ".toml":
            return tomllib.loads(text.decode())
        loaded = json.loads(text)
    except ValueError as error:
        kind = "TOML" if path.suffix == ".toml" else "JSON"
        raise FormatError([Problem(str(path), "", f"is not valid {kind}: {error}", "mend the file")]) from error
    if not isinstance(loaded, dict):
        raise FormatError([Problem(str(path), "", "is no JSON object", "write {…}")])
    return loaded
