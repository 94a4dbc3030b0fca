"""`gauntlet network check|explain|render|evaluate|probe`: network policy from a file, without any service.

Prints for people on stdout, or with `--json` one JSON document and nothing else. Exit codes: 0 done,
1 rejected or different, 2 wrong use (a missing file, an unknown option, an unusable cluster file).
Decides nothing: every rule lives in `network`. `evaluate` and `probe` are `cli.network_objects`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from cli import network_objects
from cli.network_files import (
    BackendName,
    BackendOption,
    ClusterOption,
    FileArg,
    HumanOption,
    IsolationOption,
    JsonOption,
    KindOption,
    NamespaceOption,
    SandboxOption,
    as_yaml,
    checked,
    compared,
    described,
    once,
    print_json,
    print_report,
    target_of,
    usage,
)
from network.explain import difference, difference_text, provenance, table
from network.problems import Problem
from network.render import backend as backends
from network.render.names import DEFAULT_NAMESPACE, DEFAULT_SANDBOX_ID

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Network policy of a task: check it, explain it, render it, evaluate what was rendered, probe it.",
)


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
    once(file, isolation, cluster)
    found = checked(file, kind, isolation, human_eval, described(cluster), backend)
    if as_json:
        print_json(found.to_json())
    else:
        print_report(found)
        print(f"{file}: {'ok' if found.ok else 'rejected'}")
    raise typer.Exit(0 if found.ok else 1)


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
    once(file, isolation, cluster, diff)
    found = checked(file, kind, isolation, human_eval, described(cluster), None)
    document = found.to_json()
    changes = None
    if diff is not None and found.ok:
        document["diff"] = changes = compared("--diff", diff, lambda saved: difference(saved, document))
    if as_json:
        print_json(document)
    else:
        print_report(found)
        if found.ok:
            print(table(found.matrix), provenance(found.matrix), sep="\n\ngranted by\n")
        if changes is not None:
            print(f"\nchanged since {diff}:\n{difference_text(changes)}" if changes else f"\nsame as {diff}")
    raise typer.Exit(0 if found.ok and not changes else 1)


@app.command()
def render(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Network file; not needed with --baseline-only.")] = "",
    backend: BackendOption = None,
    kind: KindOption = None,
    isolation: IsolationOption = None,
    human_eval: HumanOption = False,
    cluster: ClusterOption = None,
    sandbox_id: SandboxOption = DEFAULT_SANDBOX_ID,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    baseline_only: Annotated[bool, typer.Option("--baseline-only", help="The always-on objects alone.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the policy objects of one backend as YAML documents, or with what each pod carries as JSON."""
    once(file, isolation, cluster)
    cluster_file = described(cluster)
    target = target_of(backend, cluster_file)
    try:
        if baseline_only:
            if file:
                usage(f"--baseline-only reads no FILE: leave {file} out, or render it without this option")
            rendered = backends.baseline(target, cluster_file, namespace)
        else:
            if not file:
                usage("FILE is missing; only --baseline-only works without")
            found = checked(file, kind, isolation, human_eval, cluster_file, BackendName(target))
            if found.ok or not as_json:
                print_report(found, warnings=False, stream=sys.stderr)
            rendered = backends.render(found, target, sandbox_id=sandbox_id, namespace=namespace)
    except backends.RenderError as error:
        usage(str(error))
    except backends.Refused as refused:
        if as_json:
            print_json(_refusal(refused.problems))
        raise typer.Exit(1) from refused
    if as_json:
        print_json(rendered.to_json())
    else:
        print(as_yaml(rendered.objects), end="")


app.command()(network_objects.evaluate)
app.command()(network_objects.probe)


def _refusal(problems: list[Problem]) -> dict[str, Any]:
    listed = [problem.to_json() for problem in problems]
    return {"ok": False, "problems": listed, "warnings": [], "objects": [], "pods": {}}


if __name__ == "__main__":
    app()
