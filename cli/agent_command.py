"""An agent command: a process on the trusted side, unprivileged, that acts through the API with its own token.

It gets GAUNTLET_ENDPOINT (the scheduler's agent socket), GAUNTLET_ATTEMPT_ID and the token by descriptor
(GAUNTLET_TOKEN_FD, re-readable from offset 0), never by environment.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from cli.running import CommandFailed, Exit

INSTALLED = Path("/var/lib/gauntlet")
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TERM", "TZ", "HOME")


def token_descriptor(token: str) -> int:
    """A descriptor of a file that exists nowhere else and holds the token."""
    fd = os.memfd_create("gauntlet-token", os.MFD_CLOEXEC)
    os.write(fd, token.encode())
    return fd


def token_of_environment(environment: Mapping[str, str] = os.environ) -> str | None:
    """The token that an agent command was given; None outside of one. Raises CommandFailed for a bad descriptor."""
    number = environment.get("GAUNTLET_TOKEN_FD")
    if number is None:
        return None
    try:
        return os.pread(int(number), 4096, 0).decode()
    except (OSError, ValueError) as error:
        raise CommandFailed(f"GAUNTLET_TOKEN_FD={number} is no readable descriptor: {error}", Exit.USAGE) from error


def unprivileged() -> pwd.struct_passwd | None:
    """Whom to run as: the caller behind sudo, else nobody; None when the caller has no privileges to drop."""
    if os.geteuid() != 0:
        return None
    sudo = os.environ.get("SUDO_UID", "")
    return pwd.getpwuid(int(sudo)) if sudo.isdigit() and int(sudo) else pwd.getpwnam("nobody")


def commands_of(endpoint: str) -> Path:
    """Where an agent command finds `gauntlet`: the environment's installed one, else the directory of our own.

    The local stack's sockets lie in /run/gauntlet/INSTANCE, what it installed in /var/lib/gauntlet/INSTANCE.
    """
    installed = INSTALLED / Path(endpoint.removeprefix("unix://")).parent.name / "bin"
    return installed if (installed / "gauntlet").exists() else Path(sys.executable).parent


async def run_agent_command(command: str, *, endpoint: str, attempt_id: str, token: str) -> int:
    """Run the command to its end; returns its exit code. Its output goes to standard error."""
    fd = token_descriptor(token)
    environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    environment["PATH"] = f"{commands_of(endpoint)}:{environment.get('PATH', os.defpath)}"
    environment |= {"GAUNTLET_ENDPOINT": endpoint, "GAUNTLET_ATTEMPT_ID": attempt_id, "GAUNTLET_TOKEN_FD": str(fd)}
    user = unprivileged()
    if user is not None:
        environment["HOME"] = user.pw_dir
    try:
        words = shlex.split(command)
        if words and shutil.which(words[0], path=environment["PATH"]) is None:
            raise FileNotFoundError(f"no program {words[0]!r} on PATH")
        process = await asyncio.create_subprocess_exec(
            *words,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=sys.stderr,
            pass_fds=(fd,),
            user=user.pw_uid if user else None,
            group=user.pw_gid if user else None,
            extra_groups=[] if user else None,
            start_new_session=True,
        )
    except (FileNotFoundError, PermissionError, ValueError) as error:
        raise CommandFailed(f"--agent {command!r} cannot be started: {error}", Exit.USAGE) from error
    finally:
        os.close(fd)
    try:
        return await process.wait()
    except asyncio.CancelledError:
        process.terminate()
        await process.wait()
        raise
