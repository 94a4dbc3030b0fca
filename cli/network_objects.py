"""`gauntlet network evaluate|probe`: what rendered objects and running sandboxes really permit.

Both compare with what the file promises and exit 1 when it is not the same.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

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
    read,
    read_document,
    read_json,
    target_of,
    usage,
)
from network.check import Checked
from network.cluster import Cluster
from network.evaluate.errors import EvaluateError
from network.evaluate.invariants import find
from network.evaluate.matrix import evaluate as evaluate_objects
from network.explain import difference_text, unequal
from network.probe import Targets, expected_checks
from network.probeplan import PlanError, ProbePlan
from network.proberesults import ProbeError, judge, read_results
from network.probetargets import TargetsError, read_targets
from network.render import backend as backends
from network.render.names import DEFAULT_NAMESPACE, DEFAULT_SANDBOX_ID
from network.render.probejob import probe_job


def evaluate(
    file: Annotated[str, typer.Argument(metavar="FILE", help="What `render --json` printed, `-` = standard input.")],
    against: Annotated[
        Path | None, typer.Option("--against", metavar="EXPLAINED", help="Compare with a saved `explain --json`.")
    ] = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compute the verdicts from rendered objects alone, and name what no sandbox may have; exit 1 when there is any."""
    document = _rendered(file)
    try:
        found: dict[str, Any] = evaluate_objects(document)
        problems = find(document, _ranges(described(cluster)))
    except (EvaluateError, RecursionError) as error:
        print(f"{file}: {error}", file=sys.stderr)
        raise typer.Exit(1) from error
    if problems:
        found["problems"] = [problem.to_json() for problem in problems]
    changes = None
    if against is not None:
        found["diff"] = changes = compared("--against", against, lambda explained: unequal(explained, found))
    if as_json:
        print_json(found)
    else:
        print(as_yaml([found]), end="")
    for problem in problems:
        print(f"{file}: {problem}", file=sys.stderr)
    if changes:
        print(f"{file}: not what {against} says:\n{difference_text(changes)}", file=sys.stderr)
    raise typer.Exit(1 if problems or changes else 0)


def _rendered(file: str) -> dict[str, Any]:
    try:
        document = read_json(file)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        usage(f"{file}: not what `render --json` prints: {error}")
    if not isinstance(document, dict):
        usage(f"{file}: not what `render --json` prints")
    return document


def _ranges(cluster: Cluster | None) -> tuple[str, ...]:
    """The protected ranges that a cluster file names."""
    return tuple(str(protected.net) for protected in cluster.named_ranges) if cluster is not None else ()


def probe(
    file: FileArg,
    service: Annotated[str, typer.Option("--service", help="Whose place the probe takes (default: `default`).")] = "",
    backend: BackendOption = None,
    targets: Annotated[
        Path | None, typer.Option("--targets", metavar="FILE", help="Addresses to try, see docs/network.md.")
    ] = None,
    image: Annotated[str, typer.Option("--image", help="The probe's image, by digest: prints the Job.")] = "",
    results: Annotated[
        Path | None, typer.Option("--results", metavar="FILE", help="Judge what the probe printed.")
    ] = None,
    kind: KindOption = None,
    isolation: IsolationOption = None,
    human_eval: HumanOption = False,
    cluster: ClusterOption = None,
    sandbox_id: SandboxOption = DEFAULT_SANDBOX_ID,
    namespace: NamespaceOption = DEFAULT_NAMESPACE,
    as_json: JsonOption = False,
) -> None:
    """Show what a probe beside a service must find, print its Job, or judge its results; exit 1 at a mismatch."""
    once(file, isolation, cluster, targets, results)
    if image and results is not None:
        usage("--image prints a Job and --results judges one that ran: name one of them")
    cluster_file = described(cluster)
    target = target_of(backend, cluster_file)
    found = checked(file, kind, isolation, human_eval, cluster_file, BackendName(target))
    if not found.ok:
        print_report(found, warnings=False, stream=sys.stderr)
        raise typer.Exit(1)
    name = _service(found, service)
    checks = expected_checks(found.matrix, name, _targets(found, targets, offline=target == "docker"))
    try:
        plan = ProbePlan(tuple(checks), name, target, sandbox_id, namespace, found.digest)
    except PlanError as error:
        usage(f"{targets or file}: {error}")
    if results is not None:
        _judge(plan, str(results), as_json)
    job = None
    if image:
        if target == "docker":
            usage("--image: the docker backend has no Job; run the plan that --json prints in the sandbox")
        try:
            rendered = backends.render(found, target, sandbox_id=sandbox_id, namespace=namespace)
            job = probe_job(rendered, plan, image=image)
        except backends.RenderError as error:
            usage(str(error))
    if as_json:
        listed = [{"id": item.id, "kind": item.kind, "expect": item.expect, "reason": item.reason} for item in checks]
        print_json({"service": name, "expected": listed, "plan": plan.to_json(), "job": job})
    elif job is not None:
        print(as_yaml([job]), end="")
    else:
        for item in checks:
            print(f"{item.expect:9}  {item.id:24}  {item.reason}")


def _service(found: Checked, name: str) -> str:
    known = list(found.matrix)
    chosen = name or ("default" if "default" in known else known[0])
    if chosen not in known:
        usage(f"--service {chosen}: there is no such service; known: {', '.join(known)}")
    return chosen


def _targets(found: Checked, path: Path | None, *, offline: bool) -> Targets:
    if path is None:
        return Targets(offline=offline)
    try:
        targets = read_targets(read(str(path)), str(path), offline=offline)
    except TargetsError as error:
        usage(str(error))
    unknown = sorted(set(targets.siblings) - set(found.matrix))
    if unknown:
        usage(f"{path}: siblings: there is no service {', '.join(unknown)}; known: {', '.join(found.matrix)}")
    return targets


def _judge(plan: ProbePlan, file: str, as_json: bool) -> None:
    """Print the verdict and end the program with it."""
    try:
        verdict = judge(plan, read_results(read_document(file)))
    except ProbeError as error:
        print(f"{file}: {error}", file=sys.stderr)
        raise typer.Exit(1) from error
    if as_json:
        print_json({"service": plan.service, **verdict.to_json()})
    else:
        for item in verdict.mismatches:
            print(f"{item.id}: expected {item.expected}, observed {item.observed} ({item.reason})")
        kept = f"all {len(plan.checks)} checks as promised"
        broken = f"mismatches: {len(verdict.mismatches)}; the sandbox must not start"
        print(f"{plan.service}: {kept if verdict.ok else broken}")
    raise typer.Exit(0 if verdict.ok else 1)
