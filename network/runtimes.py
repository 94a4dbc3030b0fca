"""Which runtime class each service gets, and where that was decided.

Order: the eval set's class, a real class pinned by the task, the cluster's default, nothing (the
node's default). `CLUSTER_DEFAULT` counts as nothing. GPU services are exempt from the default.
"""

from __future__ import annotations

from dataclasses import dataclass

from network.cluster import HARDENED, Cluster
from network.isolation import UNSET_RUNTIME, Isolation
from network.problems import Place, Report
from network.spec import SandboxSpec, ServiceSpec
from network.values import IMPLICIT_RUNTIME


@dataclass(frozen=True, slots=True)
class Runtime:
    """A service's runtime class (None = the node's default) and the place that set it, if any."""

    name: str | None
    place: Place | None = None
    by_eval_set: bool = False

    @property
    def hardened(self) -> bool:
        """Whether more than the host kernel's interface lies between agent and host."""
        return self.name is not None and HARDENED.fullmatch(self.name) is not None


def choose_runtimes(
    spec: SandboxSpec, isolation: Isolation, cluster: Cluster | None, report: Report
) -> dict[str, Runtime]:
    """The runtime of every service by written name (W11 for the node's default, R27, R37, R38)."""
    chosen = {service.name: _choose(service, isolation, cluster, report) for service in spec.services.values()}
    unset = [name for name, runtime in chosen.items() if runtime.name is None]
    if unset and not isolation.strict:
        report.warn(
            "W11",
            spec.services[unset[0]].place,
            f"no runtime class: {', '.join(unset[:10])}{' ...' if len(unset) > 10 else ''} run under the node's"
            " default runtime, which may be no sandbox at all",
            "set `isolation: {runtime_class: gvisor}`",
        )
    for service in spec.services.values():
        _check(service, chosen[service.name], isolation, cluster, report)
    return chosen


def _choose(service: ServiceSpec, isolation: Isolation, cluster: Cluster | None, report: Report) -> Runtime:
    if isolation.runtime_class is not None:
        return Runtime(isolation.runtime_class, isolation.runtime_place, by_eval_set=True)
    pinned = service.runtime
    if pinned == UNSET_RUNTIME:
        place = service.runtime_place or service.place
        report.warn("W11", place, "CLUSTER_DEFAULT counts as not set", "name a runtime class, such as gvisor")
    elif pinned and not service.implicit:
        return Runtime(pinned, service.runtime_place)
    if service.gpu is not None:
        return Runtime(None)
    if cluster is not None and cluster.default_runtime_class:
        return Runtime(_strict_default(isolation, cluster) or cluster.default_runtime_class)
    if service.implicit and (cluster is None or cluster.installed(IMPLICIT_RUNTIME) is not False):
        return Runtime(IMPLICIT_RUNTIME, service.runtime_place)
    return Runtime(_strict_default(isolation, cluster))


def _strict_default(isolation: Isolation, cluster: Cluster | None) -> str | None:
    return cluster.hardened_runtime if isolation.strict and cluster is not None else None


def _check(
    service: ServiceSpec, runtime: Runtime, isolation: Isolation, cluster: Cluster | None, report: Report
) -> None:
    place = runtime.place if runtime.place and not runtime.by_eval_set else service.place
    if runtime.name is not None and cluster is not None and cluster.installed(runtime.name) is False:
        report.reject(
            "R27",
            Place(place.file, place.path, place.line, service.name),
            f"runtime class {runtime.name} is not installed on the cluster",
            f"installed: {', '.join(cluster.runtime_classes or ()) or 'none'}",
        )
    if not isolation.strict:
        return
    if service.gpu is not None and not isolation.allow_gpu:
        report.reject(
            "R38",
            service.gpu,
            f"{service.name} asks for a GPU, which gVisor does not offer, at the strict level",
            "set `allow_gpu: true` in the isolation settings, or drop the GPU",
        )
    if service.gpu is None and not runtime.hardened and not runtime.by_eval_set:
        named = f"runs under {runtime.name}" if runtime.name else "has no runtime class"
        report.reject(
            "R37",
            place,
            f"{service.name} {named}: the strict level needs a hardened runtime",
            "set `runtime_class: gvisor` in the isolation settings, or install one on the cluster",
        )
    if runtime.by_eval_set and not runtime.hardened:
        report.warn(
            "W11",
            runtime.place or service.place,
            f"runtime class {runtime.name} is not known to be hardened",
            "name gvisor or kata",
        )
