"""Who gets the internet: grants of the whole sandbox, and the files that ask for what cannot be.

The grant is per sandbox, not per service. Owns R3, R4, R7, R36 and the effective membership in
networks, Compose's implicit `default` network included.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from network.isolation import Isolation
from network.model import Grant
from network.names import DEFAULT
from network.problems import Place, Report, shown
from network.spec import Cidr, Domain, ExtraPort, SandboxSpec, ServiceSpec


@dataclass(slots=True)
class Egress:
    """What every connected service may reach outside. `everything` lists the places that open it all."""

    everything: list[tuple[str, Place]] = field(default_factory=list)
    domains: list[Domain] = field(default_factory=list)
    cidrs: list[Cidr] = field(default_factory=list)
    ports: list[ExtraPort] = field(default_factory=list)

    def grants(self) -> list[Grant]:
        """The provenance of everything that is open."""
        if self.everything:
            return [_grant("internet", value, place) for value, place in self.everything]
        return [
            *(_grant("domain", item.name, item.place) for item in self.domains),
            *(_grant("cidr", str(item.net), item.place) for item in self.cidrs),
            *(_grant("port", extra_port_text(item), item.place) for item in self.ports),
        ]


def extra_port_text(port: ExtraPort) -> str:
    """`UDP/443 to a.b`, or `to every allowed domain`."""
    return f"{port.protocol}/{port.port} to {port.domain or 'every allowed domain'}"


def _grant(kind: str, value: str, place: Place) -> Grant:
    return Grant(kind, value, place.service, place.path, place.line, place.file)


def memberships(spec: SandboxSpec, report: Report) -> dict[str, frozenset[str]]:
    """The networks that each service really joins, by written name (R7 for undeclared ones)."""
    joined: dict[str, frozenset[str]] = {}
    for service in spec.services.values():
        names = set() if service.isolated else set(service.networks)
        for name in sorted(names - set(spec.networks)):
            if spec.kind == "compose" and name == DEFAULT:
                continue
            report.reject(
                "R7",
                service.networks[name].place,
                f"network {shown(name)} is not declared at the top level",
                f"declare it: `networks: {{{name}: {{}}}}`, or correct the name",
            )
        if spec.kind == "compose" and not spec.networks:
            names.discard(DEFAULT)  # the implicit network of a file that declares none joins everyone
        elif spec.kind == "compose" and DEFAULT in spec.networks and not names and not service.mode_written:
            names.add(DEFAULT)
        joined[service.name] = frozenset(names)
    return joined


def task_egress(spec: SandboxSpec, joined: dict[str, frozenset[str]], report: Report) -> Egress:
    """What the file itself grants (R3, R4 and the warnings that go with them)."""
    egress = Egress()
    bridges = [service for service in spec.services.values() if service.mode == "bridge"]
    for service in bridges:
        egress.everything.append((f"network_mode: bridge on {service.name}", _mode_place(service)))
    shared = _shared_network(spec, joined, report)
    if shared is not None:
        place = spec.networks[shared].place
        egress.everything.append((f"network {shared}, not internal and joined by every service", place))
    grants = spec.grants
    egress.everything += [("allowed entity world", item.place) for item in grants.entities]
    egress.everything += [("allowed domain *", item.place) for item in grants.domains if item.name == "*"]
    egress.domains = [item for item in grants.domains if item.name != "*"]
    egress.cidrs, egress.ports = list(grants.cidrs), list(grants.ports)
    if bridges and not spec.networks:
        _reject_split(spec, bridges[0], report)
    if egress.everything:
        granted, place = egress.everything[0]
        by = f"line {place.line}" if place.line else place.path
        for service in _internal_only(spec, joined):
            report.reject(
                "R3",
                _networks_place(service),
                f"{service.name} is on internal networks only, but {granted} ({by}) puts the whole sandbox online",
                "use `network_mode: none` for it, or remove the grant",
            )
    return egress


def _mode_place(service: ServiceSpec) -> Place:
    return service.mode_place or service.place


def _shared_network(spec: SandboxSpec, joined: dict[str, frozenset[str]], report: Report) -> str | None:
    """The one plain network that every service joins and nothing else, which grants the internet."""
    if spec.kind != "compose" or len(spec.networks) != 1 or not spec.services:
        return None
    network = next(iter(spec.networks.values()))
    if network.internal or not network.plain_driver:
        return None
    outside = [service for service in spec.services.values() if joined[service.name] != {network.name}]
    if not outside:
        return network.name
    if len(outside) < len(spec.services) and all(service.isolated for service in outside):
        report.warn(
            "W2",
            outside[0].place,
            f"network {network.name} would grant the internet, but {outside[0].name} (network_mode: none) joins"
            " nothing, so no service gets it",
            "set `network_mode: bridge` on a service if the internet is meant, or `internal: true` if not",
        )
    return None


def _reject_split(spec: SandboxSpec, bridge: ServiceSpec, report: Report) -> None:
    for service in spec.services.values():
        if not service.mode_written and not set(service.networks) - {DEFAULT}:
            report.reject(
                "R4",
                service.place,
                f"{bridge.name} is on `network_mode: bridge` and {service.name} on no network at all: under"
                " Docker they could not talk to each other",
                "declare one network at the top level and put every service on it",
            )


def _internal_only(spec: SandboxSpec, joined: dict[str, frozenset[str]]) -> Iterator[ServiceSpec]:
    """The services that join internal networks and no other."""
    for service in spec.services.values():
        names = joined[service.name]
        if names and all(name in spec.networks and spec.networks[name].internal for name in names):
            yield service


def warn_internal(spec: SandboxSpec, joined: dict[str, frozenset[str]], egress: Egress, report: Report) -> None:
    """W6 for services on internal networks only that get what is listed, whoever lists it: the task or the eval set."""
    listed = [*(item.name for item in egress.domains), *(str(item.net) for item in egress.cidrs)]
    if not listed or egress.everything:
        return
    for service in _internal_only(spec, joined):
        report.warn(
            "W6",
            _networks_place(service),
            f"{service.name} is on internal networks only, but what is allowed ({', '.join(listed[:5])}) is open to it"
            " too",
            "use `network_mode: none` for it if it must stay offline",
        )


def _networks_place(service: ServiceSpec) -> Place:
    return service.networks_place or service.place


def effective_egress(task: Egress, isolation: Isolation, report: Report) -> Egress:
    """At strict the eval set owns egress: its lists replace the file's, and without any R36 refuses it."""
    if not isolation.strict:
        return task
    wanted = [grant.value for grant in task.grants()]
    if not isolation.grants:
        if wanted:
            first = task.grants()[0]
            report.reject(
                "R36",
                Place(first.file, first.path, first.line, first.service),
                f"the task asks for egress at the strict level, which grants none: {', '.join(wanted[:10])}",
                "list the targets under isolation.allow_domains or allow_cidr, or drop them from the task",
            )
        return Egress()
    own = Egress(
        everything=[("allowed domain *", item.place) for item in isolation.domains if item.name == "*"],
        domains=[item for item in isolation.domains if item.name != "*"],
        cidrs=list(isolation.cidrs),
    )
    if wanted:
        report.warn(
            "W18",
            isolation.place,
            f"the isolation settings replace the task's own egress: {', '.join(wanted[:10])}",
        )
    return own
