"""Objects for GKE Dataplane V2: NetworkPolicy per sandbox, a clusterwide baseline, FQDNNetworkPolicy.

Dataplane V2 serves no CiliumNetworkPolicy and checks no names, but its engine is Cilium's: addresses
never match pods or nodes, and the clusterwide policy has entities. FQDNNetworkPolicy is rendered only
for a cluster that declares a gateway checking names (`enforcement.name_filter`); elsewhere a domain
list is refused before it comes here.
"""

from __future__ import annotations

from typing import Any

from network.cluster import Cluster, closing_resolver
from network.render import cilium, kubernetes
from network.render.names import connected, metadata
from network.render.plan import Plan

Object = dict[str, Any]
FQDN_API = "networking.gke.io/v1alpha1"
_WEB_PORTS = (("TCP", 443), ("TCP", 80))


def render(plan: Plan) -> list[Object]:
    """The objects of one sandbox in the order to apply them, without the baseline."""
    objects = kubernetes.render(plan, addresses_see_pods=False)
    domains = plan.outside.domains if plan.outside else ()
    if domains:
        objects.append(_fqdn_policy(plan, domains))
    return objects


def baseline(cluster: Cluster | None, namespace: str) -> list[Object]:
    """The clusterwide object; it uses L3 and L4 only, as Dataplane V2 asks.

    The address of NodeLocal DNSCache stays out of it: under gVisor a query is an ordinary packet to that address.
    What opens it is the sandbox's own rule for port 53 alone; every other address rule excepts all of link-local.
    Where a range of the cluster file holds the address, nothing opens it.
    """
    return cilium.baseline(cluster, namespace, node_resolver=closing_resolver(cluster) is None)


def _fqdn_policy(plan: Plan, domains: tuple[str, ...]) -> Object:
    ports = [{"protocol": protocol, "port": port} for protocol, port in _WEB_PORTS]
    egress: list[Object] = [{"matches": [_match(name) for name in domains], "ports": ports}]
    for item in sorted(plan.decision.egress.ports, key=lambda port: (port.domain or "", port.port, port.protocol)):
        names = [item.domain] if item.domain else list(domains)
        protocols = ("TCP", "UDP", "SCTP") if item.protocol == "ANY" else (item.protocol,)
        egress.append(
            {
                "matches": [_match(name) for name in names],
                "ports": [{"protocol": protocol, "port": item.port} for protocol in protocols],
            }
        )
    return {
        "apiVersion": FQDN_API,
        "kind": "FQDNNetworkPolicy",
        "metadata": metadata(plan.sandbox_id, plan.namespace, "domains"),
        "spec": {"podSelector": connected(plan.sandbox_id), "egress": egress},
    }


def _match(domain: str) -> Object:
    return {"pattern" if "*" in domain else "name": domain}
