"""What each stack's image holds: data only, read by the builder, the pinning tool and the Dockerfile's test."""

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
AGENT_UID = 1000
AGENT_NAME = "agent"
WORKSPACE = "/workspace"
SUPERVISOR_PATH = "/usr/local/bin/gauntlet-supervisor"
REPOSITORY = "gauntlet-sandbox"


class ImageError(Exception):
    """An image cannot be built as asked; the message says what to do."""


@dataclass(frozen=True)
class Stack:
    """One stack."""

    name: str
    suite: str
    """Debian release. Its own archive area alone: those versions no longer change once the release is old-stable,
    while security updates would replace a pinned version at any time; a sandbox has no network to be attacked by."""
    packages: tuple[str, ...]
    """What is asked for; the lock file names these and everything they bring, each with its exact version."""
    links: tuple[tuple[str, str], ...] = ()
    """Symbolic links (path, target) for programs that the distribution keeps off PATH."""

    @property
    def directory(self) -> Path:
        """Where the stack's Dockerfile and lock file are."""
        return HERE / self.name

    @property
    def lock_file(self) -> Path:
        """The exact version of every package in the image."""
        return self.directory / "packages.lock"


_POSTGRESQL = "/usr/lib/postgresql/15/bin"

STACKS = {
    stack.name: stack
    for stack in (
        Stack(
            name="python311",
            suite="bookworm",
            packages=(
                "build-essential",
                "ca-certificates",
                "curl",
                "git",
                "make",
                "postgresql",
                "procps",
                "python3",
                "python3-pip",
                "python3-pytest",
                "python3-pytest-xdist",
                "python3-venv",
            ),
            links=tuple((f"/usr/local/bin/{p}", f"{_POSTGRESQL}/{p}") for p in ("initdb", "pg_ctl", "postgres")),
        ),
    )
}


def find_stack(name: str) -> Stack:
    """Return a stack by name.

    Raises:
        ImageError: there is none; the message names those there are.
    """
    try:
        return STACKS[name]
    except KeyError:
        raise ImageError(f"unknown stack {name!r}: known are {', '.join(sorted(STACKS))}") from None
