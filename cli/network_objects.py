"""`gauntlet network evaluate|probe`: what rendered objects and running sandboxes really permit.

Both compare with what the file promises and exit 1 when it is not the same.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.network_files import ClusterOption, JsonOption, as_yaml, described, print_json, read_json, usage
from network.cluster import Cluster
from network.evaluate.errors import EvaluateError
from network.evaluate.invariants import find
from network.evaluate.matrix import evaluate as evaluate_objects
from network.explain import ApprovalError, difference_text, unequal


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
        try:
            changes = unequal(read_json(str(against)), found)
        except (ApprovalError, json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            usage(f"--against {against}: {error}")
        found["diff"] = changes
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
    if cluster is None:
        return ()
    named = cluster.protected
    return (*named.vpc, *named.nodes, *named.pods, *named.services, *named.control_plane)
