"""What the objective judge needs from a packed challenge: its settings, and which suites it has.

Reads a tar that the scheduler has validated; extracts nothing.
"""

from __future__ import annotations

import tarfile
from dataclasses import dataclass
from typing import BinaryIO

from formats.challenge import DESCRIPTION, ChallengeSpec, parse_description
from formats.objective import FILE, HIDDEN_SUITES, VISIBLE, ObjectiveConfig, parse_objective
from judges.errors import JudgingFault

VISIBLE_PREFIX = "workspace/challenge/tests/"
HIDDEN_PREFIX = "hidden/hidden_tests/"


@dataclass(frozen=True)
class JudgedChallenge:
    """A challenge as judges see it; `suites` in the order of `formats.objective.SUITES`."""

    spec: ChallengeSpec
    objective: ObjectiveConfig
    suites: tuple[str, ...]


def read_challenge(package: BinaryIO) -> JudgedChallenge:
    """The challenge in a package. Raises JudgingFault when it is not one."""
    try:
        with tarfile.open(fileobj=package, mode="r:") as archive:
            members = {member.name.removeprefix("./"): member for member in archive.getmembers() if member.isfile()}
            files = {name: _bytes(archive, members[name]) for name in (DESCRIPTION, FILE) if name in members}
        suites = [suite for suite in HIDDEN_SUITES if any(n.startswith(f"{HIDDEN_PREFIX}{suite}/") for n in members)]
        if any(name.startswith(VISIBLE_PREFIX) for name in members):
            suites.insert(0, VISIBLE)
        return JudgedChallenge(parse_description(files[DESCRIPTION]), parse_objective(files.get(FILE)), tuple(suites))
    except (tarfile.TarError, KeyError, ValueError) as error:
        raise JudgingFault(f"the challenge's package cannot be read: {error}") from error


def _bytes(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    return file.read() if file is not None else b""
