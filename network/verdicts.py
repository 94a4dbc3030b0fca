"""The decision table: one specification in, the verdict of every service out.

This is the only place where reading becomes permission. Isolated services get nothing whatever the
sandbox is granted; every other one gets the sandbox's egress, and is reachable by the siblings with
which it shares a network, or by all where the file declares none.
"""

from __future__ import annotations

from network.cluster import Cluster
from network.egress import Egress, effective_egress, memberships, task_egress, warn_internal
from network.hardening import check_users, security_context
from network.isolation import Isolation
from network.model import Dns, Grant, Internet, Matrix, ServiceVerdict
from network.names import Names
from network.problems import Place, Report
from network.runtimes import Runtime, choose_runtimes
from network.spec import SandboxSpec, ServiceSpec
from network.strict import check_level
from network.warnings import warn_grants, warn_services

SSH_PORT = 2222


class Decision:
    """The matrix, and what renderers need beside it.

    `matrix` is by final name; `joined` maps final names to networks; `egress` is the sandbox's own; `security`
    is what the strict level puts on each pod.
    """

    def __init__(
        self,
        spec: SandboxSpec,
        names: Names,
        isolation: Isolation,
        cluster: Cluster | None,
        human_eval: Place | None,
        report: Report,
    ) -> None:
        self.names = names
        self._spec = spec
        joined = memberships(spec, report)
        task = task_egress(spec, joined, report)
        self.egress: Egress = effective_egress(task, isolation, report)
        warn_internal(spec, joined, self.egress, report)
        human = [*isolation.human_evals, *([human_eval] if human_eval else [])]
        check_level(spec, isolation, human, report)
        check_users(spec.services.values(), isolation, report)
        self._ssh: Place | None = human[0] if human and not isolation.strict else None
        self._runtimes = choose_runtimes(spec, isolation, cluster, report)
        self._peers = _peers(spec, joined)
        self.joined = {names.final[name]: networks for name, networks in joined.items()}
        self.has_networks = bool(spec.networks)
        self.security = {names.final[s.name]: security_context(s, isolation) for s in spec.services.values()}
        self.isolated = frozenset(names.final[s.name] for s in spec.services.values() if s.isolated)
        self._outside = self.egress.grants()
        self.matrix: Matrix = {names.final[service.name]: self._verdict(service) for service in spec.services.values()}
        warn_grants(self.egress, report)
        warn_services(spec, joined, names.final, self.matrix, report)

    def _verdict(self, service: ServiceSpec) -> ServiceVerdict:
        final = self.names.final
        name = final[service.name]
        runtime = self._runtimes[service.name]
        ssh = self._ssh if name == self.names.default else None
        grants = [*_runtime_grant(runtime, service), *_ssh_grant(ssh)]
        outside = (SSH_PORT,) if ssh else ()
        if service.isolated:
            return ServiceVerdict(outside_ingress=outside, runtime_class=runtime.name, granted_by=tuple(grants))
        egress = self.egress
        internet: Internet = "none"
        dns: Dns = "siblings"
        if egress.everything:
            internet, dns = "all", "all"
        elif egress.domains or egress.cidrs:
            internet, dns = "listed", "listed" if egress.domains else "siblings"
        listed = internet == "listed"
        peers = self._peers[service.name]
        return ServiceVerdict(
            internet=internet,
            domains=tuple(sorted(item.name for item in egress.domains)) if listed else (),
            cidrs=tuple(sorted(str(item.net) for item in egress.cidrs)) if listed else (),
            dns=dns,
            reachable_from=tuple(sorted(final[peer] for peer in peers)),
            ports=service.ports if self._meets_siblings(name) else None,
            outside_ingress=outside,
            runtime_class=runtime.name,
            granted_by=(*self._outside, *self._sibling_grants(service), *grants),
        )

    def _meets_siblings(self, name: str) -> bool:
        """Whether siblings could reach the service at all: it shares a network, or the file declares none."""
        return not self.has_networks or bool(self.joined[name])

    def _sibling_grants(self, service: ServiceSpec) -> list[Grant]:
        if not self._peers[service.name]:
            return []
        place = service.networks_place or service.place
        networks = sorted(self.joined[self.names.final[service.name]])
        text = f"shares {', '.join(networks)}" if networks else "the file declares no networks"
        found = [Grant("siblings", text, service.name, place.path, place.line, place.file)]
        if service.ports is not None and service.ports_place is not None:
            listed = ", ".join(f"{port.protocol}/{port.port}" for port in service.ports)
            ports = service.ports_place
            found.append(Grant("ports", listed, service.name, ports.path, ports.line, ports.file))
        return found


def _peers(spec: SandboxSpec, joined: dict[str, frozenset[str]]) -> dict[str, list[str]]:
    """Who can open a connection to each service, by written name."""
    connected = [service.name for service in spec.connected]
    members: dict[str, list[str]] = {}
    for name in connected:
        for network in joined[name]:
            members.setdefault(network, []).append(name)
    peers: dict[str, list[str]] = {name: [] for name in spec.services}
    for name in connected:
        if not spec.networks:
            reaching = set(connected)
        else:
            reaching = {other for network in joined[name] for other in members[network]}
        peers[name] = [other for other in connected if other in reaching and other != name]
    return peers


def _runtime_grant(runtime: Runtime, service: ServiceSpec) -> list[Grant]:
    if runtime.name is None or runtime.place is None:
        return []
    place = runtime.place
    return [Grant("runtime", runtime.name, service.name, place.path, place.line, place.file)]


def _ssh_grant(place: Place | None) -> list[Grant]:
    if place is None:
        return []
    return [Grant("ingress", f"TCP/{SSH_PORT}, human eval", None, place.path, place.line, place.file)]
