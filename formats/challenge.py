"""A challenge: its description (`challenge.yaml`) and the shape of its directory.

Owns the schema and the checks that need only the directory. Packing and unpacking are `formats.package`; judge
settings are `formats.objective`; what a network file means is the room `network`'s word (`formats.network_files` hands
it over); whether a stack exists or a resource fits a node's policy is the services' answer.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from formats.problems import FormatError, Problem, load_yaml, validate
from formats.sizes import parse_size, show_size

DESCRIPTION = "challenge.yaml"
MAX_TIME_LIMIT_SECONDS = 24 * 3600
ID_PATTERN = r"[a-z0-9][a-z0-9_-]{0,63}"
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
# Set by the platform, identically for every attempt; a challenge that changed them would break reproducibility.
RESERVED_ENVIRONMENT = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "SHELL",
        "LANG",
        "TZ",
        "HOSTNAME",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "PYTHONHASHSEED",
        "PYTHONDONTWRITEBYTECODE",
    }
)
MAX_ENVIRONMENT_BYTES = 64 * 1024
NETWORK = "network"
LEVELS = ("standard", "strict")
# Everything that may stand at the top, in workspace/ and in hidden/.
TOP = frozenset({DESCRIPTION, "workspace", "hidden", NETWORK, "agents", "README.md"})
WORKSPACE = frozenset({"challenge", "tools"})
HIDDEN = frozenset({"hidden_tests", "judge_config", "reference"})
# What the packer sends; `agents/` (example scripts) and README.md stay at home.
PACKED = (DESCRIPTION, "workspace", "hidden", NETWORK)
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")

Size = Annotated[int, BeforeValidator(parse_size)]
# Measured with gVisor: with less memory the sentry, or the judge's Python beside it, does not come to life; the quota
# file system of a smaller disk cannot be made.
LEAST_MEMORY_BYTES = 64 * 1024**2
LEAST_DISK_BYTES = 16 * 1024**2


def _at_least(least: int) -> AfterValidator:
    def check(size: int) -> int:
        if size < least:
            raise ValueError(f"is less than any sandbox needs; write at least {show_size(least)}")
        return size

    return AfterValidator(check)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ResourceRequest(_Strict):
    """Resources a challenge asks for; never above the node's policy. Sizes in bytes once read."""

    memory: Annotated[Size, _at_least(LEAST_MEMORY_BYTES)] | None = None
    cpus: Annotated[float, Field(ge=0.1, le=64, allow_inf_nan=False)] | None = None
    disk: Annotated[Size, _at_least(LEAST_DISK_BYTES)] | None = None
    pids: Annotated[int, Field(ge=16, le=4096, strict=True)] | None = None
    tmp: Size | None = None


class DatabaseRequest(_Strict):
    """A database of the image that the supervisor starts before the agent."""

    kind: Literal["postgres", "redis"]
    name: Annotated[str, Field(pattern=f"^{ID_PATTERN}$")]
    start_timeout_seconds: Annotated[int, Field(ge=1, le=120, strict=True)] = 10


class ChallengeSpec(_Strict):
    """`challenge.yaml`. `network` names a file in network/; `isolation` is a level, such a name, or the settings."""

    id: Annotated[str, Field(pattern=f"^{ID_PATTERN}$")]
    title: Annotated[str, Field(min_length=1, max_length=200)]
    stack: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,32}$")]
    time_limit_seconds: Annotated[int, Field(ge=1, le=MAX_TIME_LIMIT_SECONDS, strict=True)]
    resources: ResourceRequest = ResourceRequest()
    environment: dict[str, str] = Field(default_factory=dict)
    network: str | None = None
    isolation: Any = None
    database: DatabaseRequest | None = None

    @field_validator("network", "isolation")
    @classmethod
    def _named(cls, value: Any, info: ValidationInfo) -> str | dict[str, Any] | None:
        if value is None or (isinstance(value, dict) and info.field_name == "isolation"):
            return value
        if not isinstance(value, str) or not _FILE_NAME.fullmatch(value):
            other = "a level, a mapping, or " if info.field_name == "isolation" else ""
            raise ValueError(f"write {other}the plain name of a file in network/")
        return value

    @field_validator("environment")
    @classmethod
    def _environment(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not _ENV_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no variable name")
            if name in RESERVED_ENVIRONMENT or name.startswith("GAUNTLET_"):
                raise ValueError(f"{name} is set by the platform, the same for every attempt; choose another name")
            if "\0" in text:
                raise ValueError(f"{name} holds a NUL byte")
        if sum(len(name) + len(text.encode()) for name, text in value.items()) > MAX_ENVIRONMENT_BYTES:
            raise ValueError(f"the environment is larger than {MAX_ENVIRONMENT_BYTES} bytes")
        return value


def parse_description(text: bytes, file: str = DESCRIPTION) -> ChallengeSpec:
    """The description in `text`. Raises FormatError with every problem."""
    return validate(ChallengeSpec, load_yaml(text, file), file)


def check_directory(directory: Path) -> ChallengeSpec:
    """The description of a challenge directory whose shape is right. Raises FormatError with every problem."""
    if not directory.is_dir():
        raise FormatError([Problem(str(directory), "", "is no directory", "name a challenge's directory")])
    description = directory / DESCRIPTION
    if not description.is_file():
        raise FormatError([Problem(str(description), "", "is missing", "every challenge has one; see challenges/")])
    problems: list[Problem] = []
    spec: ChallengeSpec | None = None
    try:
        spec = parse_description(description.read_bytes(), str(description))
    except FormatError as error:
        problems.extend(error.problems)
    problems.extend(_unknown_entries(directory, TOP))
    if not (directory / "workspace" / "challenge").is_dir():
        problems.append(
            Problem(str(directory / "workspace" / "challenge"), "", "is missing", "put what the agent sees there")
        )
    for part, known in (("workspace", WORKSPACE), ("hidden", HIDDEN)):
        if (directory / part).is_dir():
            problems.extend(_unknown_entries(directory / part, known))
    if spec is not None:
        problems.extend(_network_files(directory, spec))
    if problems or spec is None:
        raise FormatError(problems)
    return spec


def _network_files(directory: Path, spec: ChallengeSpec) -> list[Problem]:
    """Every file that the description names is there, and none lies there for nothing."""
    file, folder = str(directory / DESCRIPTION), directory / NETWORK
    named = {"network": spec.network}
    if isinstance(spec.isolation, str) and spec.isolation not in LEVELS:
        named["isolation"] = spec.isolation
    there = sorted(entry.name for entry in folder.iterdir() if entry.is_file()) if folder.is_dir() else []
    problems = []
    for key, name in named.items():
        if name is not None and name not in there:
            what = "is neither a level nor a file in network/" if key == "isolation" else "is no file in network/"
            levels = f"levels: {', '.join(LEVELS)}; " if key == "isolation" else ""
            problems.append(
                Problem(file, key, f"{name!r} {what}", f"{levels}files there: {', '.join(there) or 'none'}")
            )
    if there and not any(named.values()):
        remedy = f"write `network: {there[0]}`, or remove it: without the key a sandbox has no network at all"
        problems.append(Problem(str(folder), "", "holds files, and challenge.yaml names none of them", remedy))
    return problems


def _unknown_entries(directory: Path, known: frozenset[str]) -> list[Problem]:
    names = sorted(entry.name for entry in directory.iterdir())
    return [
        Problem(str(directory / name), "", "is not part of a challenge", f"known here: {', '.join(sorted(known))}")
        for name in names
        if name not in known
    ]
