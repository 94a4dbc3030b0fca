"""A slot's life on this kernel: prepare, assign, freeze, extract, each beside the plain way to the same end.

Prepare (copy of a premade quota image, mount) beside `mkfs.ext4` of the same size; assign (overlay and bind mounts)
beside `cp -a` of the challenge; extract (diff, digests, tar of the changes) beside a SHA-256 of the same changed
bytes. Between assign and freeze an agent's user changes FILES files of SIZE bytes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from daemon.workspace.manager import WorkspaceConfig, WorkspaceManager
from formats.package import pack
from tests.bench.figures import Figure, figure
from tests.bench.options import Options
from tests.support.challenge_files import make_challenge

SAMPLES = 30
FILES, SIZE = 100, 64 * 1024
DISK_BYTES = 96 * 1024**2
CHALLENGE_FILES = 200
Answer = TypeVar("Answer")


async def run(options: Options) -> list[Figure]:
    """Seven figures, milliseconds."""
    directory = Path(tempfile.mkdtemp(prefix="gben-", dir="/tmp"))
    taken: dict[str, list[float]] = {}
    try:
        with ThreadPoolExecutor(4) as executor:
            workspace = WorkspaceManager(WorkspaceConfig(directory / "state", reserve_bytes=0), executor)
            await workspace.start()
            challenge = _challenge(directory / "answer")
            package = directory / "package.tar"
            with package.open("w+b") as file:
                digest = pack(challenge, file)
            await workspace.add_template(package, digest)
            for number in range(options.count(SAMPLES) + 1):
                await _life(workspace, directory, challenge, digest, number, taken if number else {})
            await workspace.close()
    finally:
        shutil.rmtree(directory)
    return _figures(taken)


def _challenge(directory: Path) -> Path:
    made = make_challenge(directory)
    for number in range(CHALLENGE_FILES):
        (made / "workspace/challenge/src" / f"part{number}.py").write_bytes(os.urandom(2_048).hex().encode())
    return made


async def _life(
    workspace: WorkspaceManager,
    directory: Path,
    challenge: Path,
    digest: str,
    number: int,
    taken: dict[str, list[float]],
) -> None:
    async def timed(name: str, work: Awaitable[Answer]) -> Answer:
        began = time.perf_counter()
        answer = await work
        taken.setdefault(name, []).append((time.perf_counter() - began) * 1_000)
        return answer

    def plain(name: str, work: Callable[[], object]) -> None:
        began = time.perf_counter()
        work()
        taken.setdefault(name, []).append((time.perf_counter() - began) * 1_000)

    image, copy = directory / "plain.ext4", directory / "copy"
    plain("mkfs", lambda: _mkfs(image))
    image.unlink()
    slot = await timed("prepare", workspace.prepare_slot(f"sbx_{number}", DISK_BYTES))
    try:
        plain("copy", lambda: subprocess.run(["cp", "-a", challenge / "workspace", copy], check=True))
        shutil.rmtree(copy)
        slot = await timed("assign", workspace.assign(slot, digest))
        data = [os.urandom(SIZE) for _ in range(FILES)]
        for index, content in enumerate(data):
            path = slot.workspace / "submissions" / "code" / f"out{index}"
            path.write_bytes(content)
            os.chown(path, 1000, 1000)
        slot = await timed("freeze", workspace.freeze(slot))
        plain("hash", lambda: [hashlib.sha256(content).hexdigest() for content in data])
        diff = await timed("extract", workspace.extract(slot, f"att_{number}"))
        if diff.added != FILES:
            raise RuntimeError(f"{diff.added} of {FILES} files are in the diff")
    finally:
        await timed("destroy", workspace.destroy(slot))


def _mkfs(image: Path) -> None:
    with image.open("xb") as file:
        file.truncate(DISK_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True, stdin=subprocess.DEVNULL, timeout=60)


def _figures(taken: dict[str, list[float]]) -> list[Figure]:
    found = []
    for name, that, label, plain_label in (
        ("prepare", "mkfs", "workspace: prepare a slot", "mkfs.ext4 of the slot's size"),
        ("assign", "copy", "workspace: assign a challenge", "cp -a of the challenge"),
        ("extract", "hash", f"workspace: extract {FILES} changed files", "SHA-256 of the changed bytes"),
    ):
        beside = figure(plain_label, taken[that], "ms")
        pairs = list(zip(taken[name], taken[that], strict=True))
        found += [beside, figure(label, taken[name], "ms", beside=beside, pairs=pairs)]
    found.insert(4, figure("workspace: freeze", taken["freeze"], "ms"))
    return [*found, figure("workspace: destroy", taken["destroy"], "ms")]
