"""Where setup keeps things, and the refusal to use a directory that someone else could have written.

Two roots: a cache (rebuilt at will) and a state directory (what we started, the Pulumi backend). Both belong
to the user setup runs as, mode 0700, since programs found there are run as root.
"""

import os
import stat
from pathlib import Path

from scripts.provision.console import SetupError

REPOSITORY = Path(__file__).resolve().parents[2]


def cache_directory() -> Path:
    """Return the cache root: `GAUNTLET_CACHE_DIR`, else `~/.cache/gauntlet`."""
    return Path(os.environ.get("GAUNTLET_CACHE_DIR") or Path.home() / ".cache" / "gauntlet")


def state_directory() -> Path:
    """Return the state root: `GAUNTLET_STATE_DIR`, else `~/.local/state/gauntlet`."""
    return Path(os.environ.get("GAUNTLET_STATE_DIR") or Path.home() / ".local" / "state" / "gauntlet")


def private_directory(path: Path) -> Path:
    """Make `path` with mode 0700, or check that an existing one is ours and closed to others.

    Raises:
        SetupError: the path is a link, belongs to another user, or can be opened by others.
    """
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise SetupError(f"{path} is not a directory (a link perhaps)", f"move {path} away and run setup again")
    if found.st_uid != os.geteuid():
        raise SetupError(
            f"{path} belongs to user {found.st_uid}, not to {os.geteuid()}",
            f"remove {path} or give it back with: chown -R {os.geteuid()} {path}",
        )
    if found.st_mode & 0o077:
        raise SetupError(
            f"{path} is open to other users (mode {found.st_mode & 0o777:o}); programs run as root live there",
            f"chmod 700 {path}",
        )
    return path


def cached(name: str, version: str) -> Path:
    """Return `<cache>/<name>-<version>`, the directory of one installed part (not made)."""
    return cache_directory() / f"{name}-{version}"


def bin_directory() -> Path:
    """Return `<cache>/bin`, the one directory that `scripts/env.sh` puts on PATH."""
    return cache_directory() / "bin"


def publish(program: Path, name: str | None = None) -> Path:
    """Link `program` into the bin directory under `name`, replacing an older link atomically."""
    directory = private_directory(bin_directory())
    link = directory / (name or program.name)
    fresh = directory / f".{link.name}.new"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(program)
    fresh.replace(link)
    return link
