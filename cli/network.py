"""`gauntlet network check|explain|render|evaluate`: network policy from a file, without any service.

Prints for people on stdout, or with `--json` one JSON document and nothing else. Exit codes: 0 done,
1 rejected or different, 2 wrong use (a missing file, an unknown option, an unusable cluster file).
Decides nothing: every rule lives in `network`.
"""

from __future__ import annotations

import json
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
import yaml

from network.check import Checked, Source
from network.check import check as check_source
from network.cluster import Cluster, ClusterError, read_cluster
from network.evaluate.errors import EvaluateError
from network.evaluate.matrix import evaluate as evaluate_objects
from network.explain import ApprovalError, difference, difference_text, provenance, table
from network.model import Backend
from network.problems import Problem
from network.render import backend as backends
from network.render.names import DEFAULT_NAMESPACE, DEFAULT_SANDBOX_ID
from network.spec import Kind
from network.yamlread import MAX_BYTES

MAX_JSON_BYTES = 64 << 20
"""Of what `evaluate` and `--diff` read: hundreds of services stay far below."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Network policy of a task: check it, explain it, render it, evaluate what was rendered.",
)


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
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command()
def check(
    file: FileArg,
    kind: KindOption = None,
    isolation: IsolationOption = None,
    human_eval: HumanOption = False,
    cluster: ClusterOption = None,
    backend: Annotated[BackendName | None, typer.Option("--backend", help="Check for it too (R27).")] = None,
    as_json: JsonOption = False,
) -> None:
    """List every problem and warning; exit 1 when the file is rejected."""
    checked = _checked(file, kind, isolation, human_eval, cluster, backend)
    if as_json:
        _print_json(checked.to_json())
    else:
        _print_report(checked)
        print(f"{file}: {'ok' if checked.ok else 'rejected'}")
    raise typer.Exit(0 if checked.ok else 1)


@app.command()
def explain(
    file: FileArg,
    kind: KindOption = None,
    isolation: IsolationOption = None,
    human_eval: HumanOption = False,
    cluster: ClusterOption = None,
    diff: Annotated[
        Path | None, typer.Option("--diff", metavar="APPROVED", help="Compare with a saved `explain --json`.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what every service may do and which line granted it; exit 1 when rejected or different."""
    checked = _checked(file, kind, isolation, human_eval, cluster, None)
    document = checked.to_json()
    changes = None
    _once(file, isolation, cluster, diff)
    if diff is not None and checked.ok:
        try:
            changes = difference(_read_json(str(diff)), document)
        except (ApprovalError, json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            _usage(f"--diff {diff}: {error}")
        document["diff"] = changes
    if as_json:
        _print_json(document)
    else:
        _print_report(checked)
        if checked.ok:
            print(table(checked.matrix), provenance(checked.matrix), sep="\n\ngranted by\n")
        if changes is not None:
            print(f"\nchanged since {diff}:\n{difference_text(changes)}" if changes else f"\nsame as {diff}")
    raise typer.Exit(0 if checked.ok and not changes else 1)


@app.command()
def render(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Network file; not needed with --baseline-only.")] = "",
    backend: Annotated[BackendName | None, typer.Option("--backend", help="Who enforces it.")] = None,
    kind: KindOption = None,
    isolation: IsolationOption = None,
    human_eval: HumanOption = False,
    cluster: ClusterOption = None,
    sandbox_id: Annotated[str, typer.Option("--sandbox-id", help="Label of this sandbox.")] = DEFAULT_SANDBOX_ID,
    namespace: Annotated[str, typer.Option("--namespace", help="Where sandboxes run.")] = DEFAULT_NAMESPACE,
    baseline_only: Annotated[bool, typer.Option("--baseline-only", help="The always-on objects alone.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the policy objects of one backend as YAML documents, or with what each pod carries as JSON."""
    described = _cluster(cluster)
    target = _target(backend, described)
    try:
        if baseline_only:
            rendered = backends.baseline(target, described, namespace)
        else:
            if not file:
                _usage("FILE is missing; only --baseline-only works without")
            checked = _checked(file, kind, isolation, human_eval, cluster, BackendName(target))
            if checked.ok or not as_json:
                _print_report(checked, warnings=False, stream=sys.stderr)
            rendered = backends.render(checked, target, sandbox_id=sandbox_id, namespace=namespace)
    except backends.RenderError as error:
        _usage(str(error))
    except backends.Refused as refused:
        if as_json:
            _print_json(_refusal(refused.problems))
        raise typer.Exit(1) from refused
    if as_json:
        _print_json(rendered.to_json())
    else:
        print(_yaml(rendered.objects), end="")


@app.command()
def evaluate(
    file: Annotated[str, typer.Argument(metavar="FILE", help="What `render --json` printed, `-` = standard input.")],
    as_json: JsonOption = False,
) -> None:
    """Compute the verdicts from rendered objects alone, sharing no code with the renderers."""
    try:
        document = _read_json(file)
        if not isinstance(document, dict):
            _usage(f"{file}: not what `render --json` prints")
        evaluated = evaluate_objects(document)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        _usage(f"{file}: not what `render --json` prints: {error}")
    except EvaluateError as error:
        print(f"{file}: {error}", file=sys.stderr)
        raise typer.Exit(1) from error
    if as_json:
        _print_json(evaluated)
    else:
        print(_yaml([evaluated]), end="")


def _checked(
    file: str,
    kind: KindName | None,
    isolation: Path | None,
    human_eval: bool,
    cluster: Path | None,
    backend: BackendName | None,
) -> Checked:
    _once(file, isolation, cluster)
    kind_name: Kind | None = None if kind is None else kind.value
    target: Backend | None = None if backend is None else backend.value
    return check_source(
        Source(_read(file), file),
        kind=kind_name,
        isolation=None if isolation is None else Source(_read(str(isolation)), str(isolation)),
        cluster=_cluster(cluster),
        env=os.environ,
        human_eval=human_eval,
        backend=target,
    )


def _cluster(path: Path | None) -> Cluster | None:
    if path is None:
        return None
    try:
        return read_cluster(_read(str(path)), str(path))
    except ClusterError as error:
        _usage(str(error))


def _target(backend: BackendName | None, cluster: Cluster | None) -> Backend:
    if backend is not None:
        return backend.value
    if cluster is None or cluster.backend is None:
        _usage("--backend is missing, and no cluster file names one")
    return cluster.backend


def _read(file: str) -> bytes:
    """The file as far as its reader takes it, and one byte more: the reader says what is too long."""
    return _bounded(file, MAX_BYTES)


def _read_json(file: str) -> Any:
    """A document that this program printed. Raises JSONDecodeError, UnicodeDecodeError and RecursionError."""
    text = _bounded(file, MAX_JSON_BYTES)
    if len(text) > MAX_JSON_BYTES:
        _usage(f"{file}: longer than the {MAX_JSON_BYTES} bytes that a document may have")
    return json.loads(text)


def _bounded(file: str, limit: int) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read(limit + 1)
    try:
        with Path(file).open("rb") as opened:
            return opened.read(limit + 1)
    except OSError as error:
        _usage(f"{file}: {error.strerror}")


def _once(*files: str | Path | None) -> None:
    """Only one of the files may be standard input: its second reader would find it empty."""
    if sum(file is not None and str(file) == "-" for file in files) > 1:
        _usage("standard input (`-`) can be one file only")


def _usage(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    raise typer.Exit(2)


def _refusal(problems: list[Problem]) -> dict[str, Any]:
    listed = [problem.to_json() for problem in problems]
    return {"ok": False, "problems": listed, "warnings": [], "objects": [], "pods": {}}


def _print_report(checked: Checked, *, warnings: bool = True, stream: Any = None) -> None:
    for problem in checked.report.problems:
        print(problem, file=stream)
    for warning in checked.report.warnings if warnings else ():
        print(f"warning: {warning}", file=stream)


def _print_json(document: Any) -> None:
    print(json.dumps(document, indent=2))


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes repeated parts out: an alias in a policy helps nobody who reviews it."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml(documents: Any) -> str:
    return str(yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, explicit_start=True, width=110))


if __name__ == "__main__":
    app()
