"""One entry for all backends: a checked file in, its objects out, every invariant verified.

Refuses what was rejected and what the backend cannot enforce; the lint runs on every rendering, so
that a renderer's mistake stops here instead of opening a sandbox.
"""

from __future__ import annotations

from dataclasses import replace

from network.backends import check_backend
from network.check import Checked
from network.cluster import Cluster
from network.model import BACKENDS, Backend, Rendered
from network.problems import Problem, Report
from network.render import cilium, docker, gke, kubernetes
from network.render.lint import lint
from network.render.names import DEFAULT_NAMESPACE, DEFAULT_SANDBOX_ID, RenderError, check_ids
from network.render.plan import Plan

_RENDERERS = {
    "cilium": (cilium.render, cilium.baseline),
    "gke-dpv2": (gke.render, gke.baseline),
    "kubernetes": (kubernetes.render, kubernetes.baseline),
    "docker": (docker.render, docker.baseline),
}


class Refused(ValueError):
    """The file was rejected, or the backend cannot enforce it; `problems` say why."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(f"{problem.code} {problem.message}" for problem in problems))
        self.problems = problems


class InvariantError(RuntimeError):
    """A renderer broke an invariant: a bug here, never the user's fault."""


def render(
    checked: Checked,
    backend: Backend,
    *,
    sandbox_id: str = DEFAULT_SANDBOX_ID,
    namespace: str = DEFAULT_NAMESPACE,
) -> Rendered:
    """The objects of one sandbox, baseline first, and what its pods carry.

    Raises Refused (rejected, or R27), RenderError (bad id or namespace), InvariantError (our bug).
    """
    if checked.decision is None or checked.spec is None or not checked.ok:
        raise Refused(checked.report.problems)
    report = Report()
    check_backend(backend, checked.decision, checked.spec, checked.cluster, report)
    if not report.ok:
        raise Refused(report.problems)
    plan = Plan(checked.decision, sandbox_id, namespace, checked.cluster)
    draw, standing = _RENDERERS[backend]
    objects = [*standing(checked.cluster, namespace), *draw(plan)]
    pods = plan.pods()
    if backend == "docker":  # not pods: what the daemon does to every container is its own, and no less
        pods = {name: replace(pod, security_context=None) for name, pod in pods.items()}
    broken = lint(objects, pods, plan.decision.isolated)
    if broken:
        raise InvariantError("; ".join(broken))
    return Rendered(tuple(objects), pods)


def baseline(backend: Backend, cluster: Cluster | None = None, namespace: str = DEFAULT_NAMESPACE) -> Rendered:
    """The always-on objects alone, for whoever sets the cluster up."""
    check_ids("baseline", namespace)
    return Rendered(tuple(_RENDERERS[backend][1](cluster, namespace)))


__all__ = ["BACKENDS", "InvariantError", "Refused", "RenderError", "baseline", "render"]
