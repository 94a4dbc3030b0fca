"""What the commands of `gauntlet network` share: their options, the reading of files, the printing of documents.

Owns no command. A file that cannot be read, or is no document of ours, ends the program with code 2.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
import yaml

from network.check import Checked, Source
from network.check import check as check_source
from network.cluster import Cluster, ClusterError, read_cluster
from network.explain import ApprovalError
from network.model import Backend
from network.spec import Kind
from network.yamlread import MAX_BYTES

MAX_JSON_BYTES = 64 << 20
"""Of documents that this program printed: hundreds of services stay far below."""


class KindName(StrEnum):
    """The two formats of network files."""

    compose = "compose"
    values = "values"


class BackendName(StrEnum):
    """What can enforce a policy."""

    cilium = "cilium"
    gke = "gke-dpv2"
    kubernetes = "kubernetes"
    docker = "docker"


FileArg = Annotated[str, typer.Argument(metavar="FILE", help="Compose or values file, `-` = standard input.")]
KindOption = Annotated[KindName | None, typer.Option("--kind", help="Format of FILE (default: detected).")]
IsolationOption = Annotated[
    Path | None, typer.Option("--isolation", metavar="FILE", help="Isolation settings of the eval set.")
]
HumanOption = Annotated[bool, typer.Option("--human-eval", help="A person takes part: port 2222 of `default`.")]
ClusterOption = Annotated[Path | None, typer.Option("--cluster", metavar="FILE", help="What the cluster is like.")]
BackendOption = Annotated[BackendName | None, typer.Option("--backend", help="Who enforces it.")]
SandboxOption = Annotated[str, typer.Option("--sandbox-id", help="Label of this sandbox.")]
NamespaceOption = Annotated[str, typer.Option("--namespace", help="Where sandboxes run.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def checked(
    file: str,
    kind: KindName | None,
    isolation: Path | None,
    human_eval: bool,
    cluster: Cluster | None,
    backend: BackendName | None,
) -> Checked:
    """Check the file with what the options say; `once` first."""
    kind_name: Kind | None = None if kind is None else kind.value
    target: Backend | None = None if backend is None else backend.value
    return check_source(
        Source(read(file), file),
        kind=kind_name,
        isolation=None if isolation is None else Source(read(str(isolation)), str(isolation)),
        cluster=cluster,
        env=os.environ,
        human_eval=human_eval,
        backend=target,
    )


def once(*files: str | Path | None) -> None:
    """Standard input is one file: its second reader would find nothing, and nothing means the standard level."""
    if [str(file) for file in files].count("-") > 1:
        usage("standard input can be one file only: name the others")


def described(path: Path | None) -> Cluster | None:
    """The cluster file, if one is named."""
    if path is None:
        return None
    try:
        return read_cluster(read(str(path)), str(path))
    except ClusterError as error:
        usage(str(error))


def target_of(backend: BackendName | None, cluster: Cluster | None) -> Backend:
    """The backend of the option, else the cluster file's."""
    if backend is not None:
        return backend.value
    if cluster is None or cluster.backend is None:
        usage("--backend is missing, and no cluster file names one")
    return cluster.backend


def read(file: str) -> bytes:
    """The file as far as its reader takes it, and one byte more: the reader says what is too long."""
    return _bounded(file, MAX_BYTES)


def read_document(file: str) -> bytes:
    """A document that one of our programs printed; what is far too long is refused."""
    text = _bounded(file, MAX_JSON_BYTES)
    if len(text) > MAX_JSON_BYTES:
        usage(f"{file}: longer than the {MAX_JSON_BYTES} bytes that a document may have")
    return text


def read_json(file: str) -> Any:
    """Such a document, parsed. Raises JSONDecodeError, UnicodeDecodeError and RecursionError."""
    return json.loads(read_document(file))


def compared(option: str, saved: Path, compare: Callable[[Any], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """What `compare` says of the saved explanation that an option names."""
    try:
        return compare(read_json(str(saved)))
    except (ApprovalError, json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        usage(f"{option} {saved}: {error}")


def _bounded(file: str, limit: int) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read(limit + 1)
    try:
        with Path(file).open("rb") as opened:
            return opened.read(limit + 1)
    except OSError as error:
        usage(f"{file}: {error.strerror}")


def usage(message: str) -> NoReturn:
    """End the program: wrong use."""
    print(f"error: {message}", file=sys.stderr)
    raise typer.Exit(2)


def print_report(checked: Checked, *, warnings: bool = True, stream: Any = None) -> None:
    """Problems and warnings, a line each."""
    for problem in checked.report.problems:
        print(problem, file=stream)
    for warning in checked.report.warnings if warnings else ():
        print(f"warning: {warning}", file=stream)


def print_json(document: Any) -> None:
    """One document, nothing else."""
    print(json.dumps(document, indent=2))


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes repeated parts out: an alias in a policy helps nobody who reviews it."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def as_yaml(documents: Any) -> str:
    """The documents as YAML."""
    return str(yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, explicit_start=True, width=110))
