"""Warnings about what was granted: legal, but wider or other than its author may think.

Warnings that belong to one reader or rule are raised there; this module looks at the outcome.
"""

from __future__ import annotations

from network.cidrs import BROAD, Net, reaches
from network.domains import is_broad, writable_zone
from network.egress import Egress, extra_port_text
from network.model import Matrix
from network.problems import Place, Report
from network.spec import SandboxSpec


def warn_grants(egress: Egress, report: Report) -> None:
    """W1, W7-W9 and W19 for what is open to the whole sandbox."""
    for value, place in egress.everything[:1]:
        report.warn(
            "W1",
            place,
            f"the whole internet is open to every service that is not `network_mode: none` ({value})",
            "name the targets in a values file: allowDomains, allowCIDR",
        )
    for domain in egress.domains:
        zone = writable_zone(domain.name)
        if is_broad(domain.name):
            message = f"{domain.name} matches names that anybody can register"
            report.warn("W7", domain.place, message, "name the hosts one by one")
        elif zone is not None:
            message = f"{domain.name} lies in {zone}, where anybody can publish: data can leave through it"
            report.warn("W8", domain.place, message, "name the hosts one by one")
    nets: list[Net] = [item.net for item in egress.cidrs]
    if reaches(nets, BROAD):
        message = f"the allowed networks cover a large part of the address space: {', '.join(map(str, nets[:10]))}"
        report.warn("W9", egress.cidrs[0].place, message, "name the engagement's networks")
    for port in egress.ports:
        message = f"{extra_port_text(port)} is opened by address only: other hosts at that address are reachable"
        report.warn("W19", port.place, message, "keep it only if the port is needed")


def warn_services(
    spec: SandboxSpec, joined: dict[str, frozenset[str]], final: dict[str, str], matrix: Matrix, report: Report
) -> None:
    """W3-W5, W16, W17 and W22: what single services get that their own lines do not show."""
    online = any(verdict.internet == "all" for verdict in matrix.values())
    for service in spec.services.values():
        verdict = matrix[final[service.name]]
        place = service.networks_place or service.place
        names = joined[service.name]
        if service.mode == "bridge" and names:
            message = "`network_mode: bridge` together with `networks`: real Docker Compose refuses the pair"
            report.warn("W4", service.mode_place or place, message, "drop one of the two")
        alone = len(spec.services) > 1 and not verdict.reachable_from and not service.isolated
        if alone and spec.networks and not names:
            message = f"{service.name} joins no network while the file declares some: no sibling reaches it"
            report.warn("W5", service.place, message, "join one of the networks")
        if online and service.mode is None and verdict.internet == "all":
            grant = next((item for item in verdict.granted_by if item.grant == "internet"), None)
            if grant is not None and grant.service not in (None, service.name):
                message = f"{service.name} is online because of {grant.value}"
                report.warn("W16", service.place, message, "use `network_mode: none` for it if it must stay offline")
        outer = [name for name in names if name in spec.networks and not spec.networks[name].internal]
        if spec.kind == "compose" and outer and verdict.internet == "none":
            message = f"network {sorted(outer)[0]} is not internal, but that alone grants nothing here"
            report.warn("W17", place, message, "mark it `internal: true` to say so, or ask for the internet")
        if verdict.outside_ingress:
            message = f"human eval: TCP {verdict.outside_ingress[0]} of {service.name} is open from outside"
            report.warn("W22", service.place, message, "nothing listens there unless the task starts an SSH server")
    shared = [
        grant for verdict in matrix.values() for grant in verdict.granted_by if grant.path.startswith("networks.")
    ]
    for grant in shared[:1]:
        if grant.grant == "internet":
            place = Place(grant.file, grant.path, grant.line)
            message = f"{grant.value}: that alone puts the sandbox on the internet"
            report.warn("W3", place, message, "mark the network `internal: true` if the internet is not meant")
