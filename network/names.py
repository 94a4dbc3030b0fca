"""Which names services have in the end: the one `default`, host names, and collisions (R29).

A Compose service that becomes `default` keeps answering to its own name too, so that siblings which
call it by that name still reach it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from network.problems import Place, Report, shown
from network.spec import SandboxSpec, ServiceSpec

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Names:
    """`final` maps written to final names; `hosts` maps a final name to all host names of the service.

    `default` is the final name of the service that humans reach on port 2222, None without services.
    """

    final: dict[str, str]
    hosts: dict[str, tuple[str, ...]]
    default: str | None


def resolve_names(spec: SandboxSpec, report: Report) -> Names:
    """Final names and host names; R29 for two that are equal, R41 for a second `x-default`."""
    chosen = _default(spec, report)
    final = {name: DEFAULT if name == chosen else name for name in spec.services}
    _collisions(spec.services.values(), "service", report)
    _collisions_of_networks(spec, report)
    if chosen not in (None, DEFAULT) and DEFAULT in spec.services:
        other = spec.services[DEFAULT]
        report.reject(
            "R29",
            other.place,
            f"service {chosen} becomes `default` by x-default, and another service has that name",
            "rename one of them",
        )
    hosts = _hosts(spec, final, report)
    values = list(dict.fromkeys(final.values()))
    default = DEFAULT if DEFAULT in values else (values[0] if len(values) == 1 else None)
    return Names(final, hosts, default)


def _default(spec: SandboxSpec, report: Report) -> str | None:
    """The written name of the service that becomes `default`, None when nothing is renamed."""
    marked = [service for service in spec.services.values() if service.x_default is not None]
    for service in marked[1:]:
        report.reject(
            "R41",
            service.x_default or service.place,
            f"x-default is set on {marked[0].name} already",
            "mark one service only",
        )
    if marked:
        return marked[0].name
    if DEFAULT in spec.services:
        return DEFAULT
    names = list(spec.services)
    if spec.kind == "compose" and len(names) > 1:
        first = spec.services[names[0]]
        report.warn(
            "W13",
            first.place,
            f"no service is named default: {first.name}, the first one, becomes it (both names resolve)",
            "name it default, or mark another with `x-default: true`",
        )
        return first.name
    return None


def normal(name: str) -> str:
    """The form in which two names are the same: lower case, hyphens for underscores."""
    return name.lower().replace("_", "-")


def _collisions(services: Iterable[ServiceSpec], what: str, report: Report) -> None:
    seen: dict[str, str] = {}
    for service in services:
        first = seen.setdefault(normal(service.name), service.name)
        if first != service.name:
            _reject(report, service.place, what, first, service.name)


def _collisions_of_networks(spec: SandboxSpec, report: Report) -> None:
    seen: dict[str, str] = {}
    for network in spec.networks.values():
        first = seen.setdefault(normal(network.name), network.name)
        if first != network.name:
            _reject(report, network.place, "network", first, network.name)


def _reject(report: Report, place: Place, what: str, first: str, second: str) -> None:
    report.reject(
        "R29",
        place,
        f"{what} names {shown(first)} and {shown(second)} are the same once normalised",
        "rename one of them",
    )


MAX_HOSTS = 1000
"""Extra host names (aliases, DNS records) of one file."""


def _hosts(spec: SandboxSpec, final: dict[str, str], report: Report) -> dict[str, tuple[str, ...]]:
    extras = sum(len(join.aliases) for service in spec.services.values() for join in service.networks.values())
    extras += sum(len(service.names) for service in spec.services.values())
    if extras > MAX_HOSTS:
        message = f"{extras} extra host names, more than the {MAX_HOSTS} that one file may have"
        report.reject("R41", Place(spec.file), message, "drop some aliases")
    owner: dict[str, str] = {}
    hosts: dict[str, tuple[str, ...]] = {}
    for service in spec.services.values():  # real names first: an alias never takes a service's name
        for name in (final[service.name], service.name):
            owner.setdefault(name, service.name)
    for service in spec.services.values():
        extra = [alias for join in service.networks.values() for alias in join.aliases]
        names = dict.fromkeys([final[service.name], service.name, *extra, *service.names])
        for name in names:
            holder = owner.setdefault(name, service.name)
            if holder != service.name and final[holder] != final[service.name]:
                report.reject(
                    "R29",
                    service.place,
                    f"host name {shown(name)} of {service.name} belongs to {holder} already",
                    "give every alias to one service",
                )
        hosts[final[service.name]] = tuple(names)
    return hosts
