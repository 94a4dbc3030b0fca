"""What every renderer needs about one sandbox, and the pods' side of it.

Backend-neutral: which services exist, who may reach whom and by which networks. Renderers turn it
into objects and decide nothing about permissions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from network.cidrs import Protected, always_protected
from network.cluster import Cluster
from network.model import PodSpec, ServiceVerdict
from network.render.names import check_ids, pod_labels
from network.verdicts import Decision


@dataclass(frozen=True, slots=True)
class Plan:
    """One sandbox to render."""

    decision: Decision
    sandbox_id: str
    namespace: str
    cluster: Cluster | None = None

    def __post_init__(self) -> None:
        check_ids(self.sandbox_id, self.namespace)

    @property
    def protected(self) -> tuple[Protected, ...]:
        """The ranges that stay closed whatever is granted."""
        return self.cluster.protected_ranges() if self.cluster else always_protected()

    def connected(self) -> Iterator[tuple[str, ServiceVerdict]]:
        """The services that are on the network, with their verdicts."""
        decision = self.decision
        return (item for item in decision.matrix.items() if item[0] not in decision.isolated)

    @property
    def outside(self) -> ServiceVerdict | None:
        """The egress of every connected service (it is per sandbox); None when none is connected."""
        return next((verdict for _, verdict in self.connected()), None)

    @property
    def networks(self) -> list[str]:
        """The networks that some connected service joins, sorted."""
        return sorted({name for service, _ in self.connected() for name in self.decision.joined[service]})

    @property
    def ssh(self) -> tuple[str, int] | None:
        """The service and port open from outside in a human eval."""
        for name, verdict in self.decision.matrix.items():
            for port in verdict.outside_ingress:
                return name, port
        return None

    def pods(self) -> dict[str, PodSpec]:
        """What the platform puts on each service's pod."""
        decision = self.decision
        hosts = tuple(dict.fromkeys(host for name, _ in self.connected() for host in decision.names.hosts[name]))
        pods: dict[str, PodSpec] = {}
        for name, verdict in decision.matrix.items():
            isolated = name in decision.isolated
            labels = pod_labels(self.sandbox_id, name, decision.joined[name], isolated)
            pods[name] = PodSpec(labels, () if isolated else hosts, verdict.runtime_class, decision.security[name])
        return pods
