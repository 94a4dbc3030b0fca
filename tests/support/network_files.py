"""Network files of tests: check a text in one call, and read codes and verdicts off the outcome."""

from __future__ import annotations

import textwrap
from typing import Any

from network.check import Checked, Source, check
from network.cluster import Cluster, read_cluster


def checked(
    text: str,
    *,
    kind: str | None = None,
    file: str | None = None,
    isolation: str | None = None,
    task_isolation: str | None = None,
    cluster: str | Cluster | None = None,
    env: dict[str, str] | None = None,
    human_eval: bool = False,
    backend: str | None = None,
) -> Checked:
    """Check dedented texts."""
    described = read_cluster(textwrap.dedent(cluster), "cluster.yaml") if isinstance(cluster, str) else cluster

    def source(settings: str | None, name: str) -> Source | None:
        return None if settings is None else Source(textwrap.dedent(settings), name)

    return check(
        Source(textwrap.dedent(text), file or ("values.yaml" if kind == "values" else "compose.yaml")),
        kind=kind,  # type: ignore[arg-type]
        isolation=source(isolation, "isolation.yaml"),
        task_isolation=source(task_isolation, "challenge.yaml"),
        cluster=described,
        env=env,
        human_eval=human_eval,
        backend=backend,  # type: ignore[arg-type]
    )


def compose(text: str, **options: Any) -> Checked:
    """Check a Compose file."""
    return checked(text, kind="compose", **options)


def values(text: str, **options: Any) -> Checked:
    """Check a values file."""
    return checked(text, kind="values", **options)


def rejected(outcome: Checked) -> list[tuple[str, str | None]]:
    """(code, service) of every rejection, sorted by code number."""
    found = {(problem.code, problem.service) for problem in outcome.report.problems}
    return sorted(found, key=lambda item: (int(item[0][1:]), item[1] or ""))


def codes(outcome: Checked) -> list[str]:
    """The codes of all rejections, each once."""
    return list(dict.fromkeys(code for code, _ in rejected(outcome)))


def warned(outcome: Checked) -> set[str]:
    """The codes of all warnings."""
    return {warning.code for warning in outcome.report.warnings}


def verdict(outcome: Checked, service: str) -> tuple[str, str, tuple[str, ...]]:
    """(internet, dns, reachable_from) of one service of an accepted file."""
    assert outcome.ok, [str(problem) for problem in outcome.report.problems]
    found = outcome.matrix[service]
    return found.internet, found.dns, found.reachable_from
