"""A challenge's network file and isolation settings as texts, and a network report as problems of the format.

Owns where they lie: files in `network/`, settings inline in `challenge.yaml`. What they mean is the room `network`'s
word, which this room may not import: callers hand the texts over and bring the report back as plain JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from formats.challenge import DESCRIPTION, LEVELS, NETWORK, ChallengeSpec
from formats.problems import Problem

# One byte more than the network reader takes: what is too long there is told there, without reading all of it.
_READ_BYTES = (1 << 20) + 1


@dataclass(frozen=True)
class NetworkText:
    """One text, the name under which problems mention it, and the one top-level key that counts (None for all)."""

    text: bytes
    file: str
    only: str | None = None


@dataclass(frozen=True)
class NetworkTexts:
    """What a challenge says about its network; None where it says nothing."""

    network: NetworkText | None
    isolation: NetworkText | None

    @property
    def given(self) -> bool:
        """Whether the challenge says anything."""
        return self.network is not None or self.isolation is not None


def network_texts(directory: Path, spec: ChallengeSpec) -> NetworkTexts:
    """The texts of a challenge directory that `check_directory` accepted. Names are relative to the challenge."""
    network = _file(directory, spec.network) if spec.network is not None else None
    if spec.isolation is None:
        return NetworkTexts(network, None)
    if isinstance(spec.isolation, str) and spec.isolation not in LEVELS:
        return NetworkTexts(network, _file(directory, spec.isolation))
    description = (directory / DESCRIPTION).read_bytes()
    return NetworkTexts(network, NetworkText(description, DESCRIPTION, only="isolation"))


def report_problems(entries: Iterable[Mapping[str, Any]]) -> list[Problem]:
    """A network report's problems (`code`, `name`, `message`, `service`, `path`, `line`, `fix`, `file`) as ours."""
    return [_problem(entry) for entry in entries]


def _problem(entry: Mapping[str, Any]) -> Problem:
    place = entry["file"] if entry["line"] is None else f"{entry['file']}:{entry['line']}"
    service = f" (service {entry['service']})" if entry["service"] else ""
    return Problem(place, entry["path"], f"{entry['code']} {entry['name']}{service}: {entry['message']}", entry["fix"])


def _file(directory: Path, name: str) -> NetworkText:
    with (directory / NETWORK / name).open("rb") as file:
        return NetworkText(file.read(_READ_BYTES), f"{NETWORK}/{name}")
