"""Sending a challenge: check it here, pack it, upload it by digest. No server opens a client's path."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from gauntlet.scheduler.v1 import scheduler_service_pb2 as pb
from rich.text import Text

from cli.clients import Services
from cli.plain import safe
from cli.running import messages
from formats.challenge import ChallengeSpec, check_directory
from formats.network_files import NetworkText, network_texts, report_problems
from formats.objective import parse_objective
from formats.package import pack
from formats.problems import FormatError
from network.challenge import check_challenge
from network.check import Source

CHUNK_BYTES = 512 * 1024
UPLOAD_TIMEOUT = 300.0


def checked(directory: Path) -> ChallengeSpec:
    """The description of a directory that can be sent; warnings of its network file are said aloud.

    Raises FormatError with every problem.
    """
    spec = check_directory(directory)
    objective = directory / "hidden" / "judge_config" / "objective.yaml"
    if objective.is_file():
        parse_objective(objective.read_bytes(), str(objective))
    texts = network_texts(directory, spec)
    network = check_challenge(_source(directory, texts.network), _source(directory, texts.isolation))
    if not network.ok:
        raise FormatError(report_problems(problem.to_json() for problem in network.report.problems))
    for warning in network.report.warnings:
        messages.print(Text.assemble(("warning: ", "yellow"), safe(str(warning))), soft_wrap=True)
    return spec


def _source(directory: Path, text: NetworkText | None) -> Source | None:
    """The text under its path here, so that a problem can be clicked on."""
    return Source(text.text, str(directory / text.file), text.only) if text is not None else None


async def upload(services: Services, directory: Path) -> str:
    """Pack and upload; returns the digest. Raises FormatError, PackageError, grpc.RpcError."""
    with tempfile.TemporaryFile() as file:
        digest = pack(directory, file)
        size = file.tell()
        file.seek(0)

        async def parts() -> AsyncIterator[pb.UploadChallengeRequest]:
            yield pb.UploadChallengeRequest(digest=digest, size_bytes=size)
            while chunk := file.read(CHUNK_BYTES):
                yield pb.UploadChallengeRequest(chunk=chunk)

        answer = await services.scheduler.UploadChallenge(parts(), timeout=UPLOAD_TIMEOUT)
    return str(answer.digest)
