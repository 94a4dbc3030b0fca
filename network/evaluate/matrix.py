"""The verdict matrix computed from rendered objects and pods' labels alone.

Reads grants off the same set arithmetic that decides flows, so that a rule that is shadowed by a deny,
narrowed by another object or selects the wrong pods changes the matrix and not only a flow. Ports that are open to
the addresses of a name without a check of the name are listed apart. Holes that
grants leave out (`except`, denied ranges) are not shown, as in the matrix of a file; single flows see them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from network.evaluate.document import Service, read_document
from network.evaluate.traffic import PORT_PROTOCOLS, Traffic, union
from network.evaluate.view import View, port_entries

__all__ = ["evaluate"]

CLUSTER_DOMAIN = ".cluster.local"


def evaluate(document: Mapping[str, Any]) -> dict[str, Any]:
    """The matrix of what `gauntlet network render --json` printed: `{"services": {NAME: {...}}}`.

    Each service has the policy fields of the verdict model (`network.model`) except provenance; `*` among its domains
    beside others means that web ports are open by address alone. Where anything is open to a name's addresses without a
    check of the name, `domain_ports` lists it by service: `{NAME: [{"domain", "port", "protocol"}]}`, port 0 = all.
    Raises EvaluateError for an object that cannot be judged.
    """
    read = read_document(document)
    shared: dict[Any, Any] = {}
    views = {name: View(read, service, shared) for name, service in read.services.items()}
    services = {name: _verdict(name, views) for name in views}
    ports = {name: view.domain_ports for name, view in views.items() if view.domain_ports}
    return {"services": services, **({"domain_ports": ports} if ports else {})}


def _verdict(name: str, views: Mapping[str, View]) -> dict[str, Any]:
    view = views[name]
    if view.service.offline:
        limited = view.service.limited
        ports = None if limited is None else _ports(limited)
        return _fields(view.service, dns="siblings" if view.service.hosts else "none", ports=ports)
    reaching = {other: view.reached_from(views[other]) for other in views if other != name}
    # What its own kind may send in shows the ports of a service that no sibling reaches.
    used = union(reaching.values()) | view.ingress.permitted(view.service.identity)
    dns = _dns(view)
    everything = view.world and (view.by_entity or dns == "all")
    listed = not everything and bool(view.domains or view.cidrs)
    return _fields(
        view.service,
        internet="all" if everything else "listed" if listed else "none",
        domains=view.domains if listed else [],
        cidrs=view.cidrs if listed else [],
        dns=dns,
        reachable_from=sorted(other for other, found in reaching.items() if found),
        ports=_ports(used),
        outside_ingress=view.outside_ingress,
    )


def _fields(service: Service, **found: Any) -> dict[str, Any]:
    return {
        "internet": "none",
        "domains": [],
        "cidrs": [],
        "dns": "none",
        "reachable_from": [],
        "ports": None,
        "outside_ingress": [],
        "runtime_class": service.runtime_class,
        **found,
    }


def _dns(view: View) -> str:
    """What names mean something to the service.

    Without a way to a resolver only the names published inside the pod do. GKE's kinds cannot filter
    queries: they name domains only where a gateway of the cluster does, so that there the list holds.
    """
    if not view.queries:
        return "siblings" if view.service.hosts else "none"
    if any(asked.everything for asked in view.queries):
        gateway = any(rule.kind == "FQDNNetworkPolicy" for rule in view.egress.rules)
        return "listed" if gateway and not view.by_entity else "all"
    siblings_only = all(asked.text.endswith(CLUSTER_DOMAIN) for asked in view.queries)
    return "siblings" if siblings_only else "listed"


def _ports(used: Traffic) -> list[dict[str, Any]] | None:
    """The single ports of a limited set; None when every port is open, or none at all."""
    found = {name: used.of(name) for name in PORT_PROTOCOLS}
    if not any(found.values()) or any(intervals == ((0, 65535),) for intervals in found.values()):
        return None
    return port_entries(used)
