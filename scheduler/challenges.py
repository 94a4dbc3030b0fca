"""Uploaded challenges: packages by digest, validated once, then immutable.

Owns the directory of packages and their rows. What a challenge may hold is `formats`' word, what its network file
means and whether it can be enforced `network`'s; whether a node can run it is the node's. A package appears by rename
after it was checked, its row after the file, so that a kill leaves nothing half there.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import structlog

from formats.challenge import ChallengeSpec, check_directory
from formats.network_files import NetworkText, network_texts, report_problems
from formats.objective import FILE as OBJECTIVE_FILE
from formats.objective import parse_objective
from formats.package import unpack_safely
from formats.problems import FormatError
from network.challenge import check_challenge, identity, record
from network.check import Source
from scheduler.clock import Clock
from scheduler.errors import BadInput, ChallengeUnknown
from scheduler.model import ChallengeRow
from scheduler.store.port import ControlStore
from scheduler.store.threaded import StoreThread

log = structlog.get_logger(__name__)

DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
MAX_PACKAGE_BYTES = 1 << 30
READ_BYTES = 512 * 1024
_SCRATCH = ".scratch-"


class Challenges:
    """Keeps packages in `directory`, which must exist and be this process's own."""

    def __init__(self, directory: Path, store: ControlStore, thread: StoreThread, clock: Clock) -> None:
        self._directory = directory
        self._store = store
        self._thread = thread
        self._clock = clock
        # Rows never change once they are there: each is read from the store once a life.
        self._rows: dict[str, ChallengeRow] = {}
        self._specs: dict[str, ChallengeSpec] = {}

    def sweep(self) -> None:
        """Remove what an earlier life left half done."""
        for entry in self._directory.glob(f"{_SCRATCH}*"):
            _remove(entry)

    async def row(self, digest: str) -> ChallengeRow:
        """A challenge's row. Raises ChallengeUnknown."""
        row = self._rows.get(digest) or await self._thread.run(self._store.challenge, digest)
        if row is None:
            raise ChallengeUnknown(digest)
        self._rows[digest] = row
        return row

    async def spec(self, digest: str) -> ChallengeSpec:
        """A challenge's description. Raises ChallengeUnknown."""
        spec = self._specs.get(digest)
        if spec is None:
            spec = ChallengeSpec.model_validate_json((await self.row(digest)).spec_json)
            self._specs[digest] = spec
        return spec

    def path(self, digest: str) -> Path:
        """Where a package lies. Raises BadInput for something that is no digest."""
        return self._directory / f"{_hex(digest)}.tar"

    async def receive(self, digest: str, size_bytes: int, chunks: AsyncIterator[bytes]) -> ChallengeRow:
        """Take an upload of `size_bytes` whose SHA-256 is `digest`; one that is there already is not read.

        Raises BadInput for bytes that are not what was announced, FormatError for a package that the challenge
        format refuses.
        """
        _hex(digest)
        if not 0 < size_bytes <= MAX_PACKAGE_BYTES:
            raise BadInput(("size_bytes", f"must be 1 to {MAX_PACKAGE_BYTES}"))
        known = await self._thread.run(self._store.challenge, digest)
        if known is not None:
            return known
        scratch = self._directory / f"{_SCRATCH}{secrets.token_hex(8)}"
        scratch.mkdir(mode=0o700)
        try:
            package = scratch / "package.tar"
            await self._write(package, digest, size_bytes, chunks)
            spec, network_json, network_digest = await asyncio.to_thread(_check, package, scratch / "unpacked")
            await asyncio.to_thread(_publish, package, self.path(digest))
        finally:
            await asyncio.to_thread(_remove, scratch)
        row = ChallengeRow(
            digest=digest,
            challenge_id=spec.id,
            size_bytes=size_bytes,
            # Sizes stand in bytes once read, which the format takes as well.
            spec_json=spec.model_dump_json(),
            created_ns=self._clock.wall_ns(),
            network_json=network_json,
            network_digest=network_digest,
        )
        await self._thread.run(self._store.put_challenge, row)
        log.info("challenge_stored", digest=digest, challenge_id=spec.id, size_bytes=size_bytes)
        return row

    async def read(self, digest: str) -> AsyncIterator[bytes]:
        """A package's bytes. Raises ChallengeUnknown."""
        await self.row(digest)
        with self.path(digest).open("rb") as file:
            while chunk := await asyncio.to_thread(file.read, READ_BYTES):
                yield chunk

    async def _write(self, package: Path, digest: str, size_bytes: int, chunks: AsyncIterator[bytes]) -> None:
        hashed, written = hashlib.sha256(), 0
        with package.open("xb") as file:
            async for chunk in chunks:
                written += len(chunk)
                if written > size_bytes:
                    raise BadInput(("size_bytes", f"announced {size_bytes}, more was sent"))
                hashed.update(chunk)
                await asyncio.to_thread(file.write, chunk)
        if written != size_bytes:
            raise BadInput(("size_bytes", f"announced {size_bytes}, {written} were sent"))
        if hashed.hexdigest() != _hex(digest):
            raise BadInput(("digest", f"the bytes have sha256:{hashed.hexdigest()}"))


def _hex(digest: str) -> str:
    match = DIGEST.fullmatch(digest)
    if match is None:
        raise BadInput(("digest", "write sha256: and 64 hexadecimal digits"))
    return match[1]


def _check(package: Path, unpacked: Path) -> tuple[ChallengeSpec, str | None, str]:
    """Description, network explanation and identity of a package that fits in every part. Raises FormatError."""
    unpacked.mkdir(mode=0o700)
    with package.open("rb") as file:
        try:
            unpack_safely(file, unpacked)
        except PermissionError as error:
            # Modes that shut out their owner: the package could be used by nobody but root.
            name = os.path.relpath(error.filename or unpacked, unpacked)
            raise BadInput(("package", f"{name}: its mode shuts out its owner; chmod u+rwX it")) from error
    spec = check_directory(unpacked)
    objective = unpacked / OBJECTIVE_FILE
    parse_objective(objective.read_bytes() if objective.is_file() else None)
    return spec, *_check_network(unpacked, spec)


def _check_network(unpacked: Path, spec: ChallengeSpec) -> tuple[str | None, str]:
    """The explanation of the network policy (None when the challenge says nothing about it) and its identity.

    Raises FormatError with every problem, what no environment can enforce included.
    """
    texts = network_texts(unpacked, spec)
    checked = check_challenge(_source(texts.network), _source(texts.isolation))
    if not checked.ok:
        raise FormatError(report_problems(problem.to_json() for problem in checked.report.problems))
    return json.dumps(record(checked)) if texts.given else None, identity(checked)


def _source(text: NetworkText | None) -> Source | None:
    return Source(text.text, text.file, text.only) if text is not None else None


def _publish(package: Path, final: Path) -> None:
    """Make the file durable under its name."""
    with package.open("rb") as file:
        os.fsync(file.fileno())
    package.replace(final)
    directory = os.open(final.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _remove(directory: Path) -> None:
    """Remove a tree, directories included whose mode shuts out their owner; what somebody else removes is gone too."""
    for root, names, _ in os.walk(directory):
        for name in names:
            path = Path(root, name)
            if not path.is_symlink():
                with contextlib.suppress(FileNotFoundError):
                    path.chmod(0o700)
    shutil.rmtree(directory, onerror=_unless_gone)


def _unless_gone(function: object, path: str, error: tuple[type[BaseException], BaseException, object]) -> None:
    if not isinstance(error[1], FileNotFoundError):
        raise error[1]
