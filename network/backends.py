"""What each backend can enforce (R27). A verdict that one cannot is refused, never weakened.

- cilium: everything, with patterns by version.
- gke-dpv2, kubernetes: no names. DNS queries cannot be filtered there, nor SNI and Host checked, so
  a domain list is refused; a GKE cluster whose gateway does both may declare it (`name_filter`).
- docker: one container without any network. The engine's own bridges isolate nothing here.
"""

from __future__ import annotations

from network.cidrs import inside, parse
from network.cluster import Cluster, closing_resolver, unknown_families, unknown_private
from network.model import Backend, ServiceVerdict
from network.problems import Place, Report
from network.spec import SandboxSpec, ServiceSpec
from network.verdicts import Decision

DOCKER_RUNTIMES = frozenset({None, "gvisor", "runsc", "gauntlet-runsc"})


def check_backend(
    backend: Backend, decision: Decision, spec: SandboxSpec, cluster: Cluster | None, report: Report
) -> None:
    """One R27 for every service and reason that the backend cannot enforce."""
    for service in spec.services.values():
        verdict = decision.matrix[decision.names.final[service.name]]
        for reason, fix in _gaps(backend, verdict, service, decision, cluster):
            report.reject(
                "R27",
                _place(service, verdict),
                f"{backend} cannot enforce this for {service.name}: {reason}",
                fix,
            )
    if backend in ("gke-dpv2", "kubernetes"):
        _warn_private(backend, decision, cluster, spec, report)
        _warn_resolver(decision, cluster, spec, report)


def _place(service: ServiceSpec, verdict: ServiceVerdict) -> Place:
    """The service's place; of one that the file does not write (the chart's implicit default), its grant's."""
    place = service.place
    written = next((grant for grant in verdict.granted_by if grant.line is not None), None)
    if place.line is None and written is not None:
        return Place(written.file, written.path, written.line, service.name)
    return Place(place.file, place.path, place.line, service.name)


def _gaps(
    backend: Backend,
    verdict: ServiceVerdict,
    service: ServiceSpec,
    decision: Decision,
    cluster: Cluster | None,
) -> list[tuple[str, str]]:
    if backend == "cilium":
        return _cilium(verdict, cluster)
    if backend == "docker":
        return _docker(verdict, len(decision.matrix))
    filtered = backend == "gke-dpv2" and cluster is not None and cluster.enforcement.name_filter
    if verdict.domains and not filtered:
        listed = ", ".join(verdict.domains[:5])
        reason = f"a domain list ({listed}): it cannot filter DNS names, nor check SNI and Host"
        return [(reason, "use the cilium backend, or list networks under allowCIDR")]
    if backend == "kubernetes" and (gaps := _addresses(verdict, cluster)):
        return gaps
    deep = [name for name in verdict.domains if name.startswith("**.")]
    if deep:
        return [(f"pattern {deep[0]}: FQDNNetworkPolicy has no form for any depth", "write `*.` for one label")]
    return []


def _addresses(verdict: ServiceVerdict, cluster: Cluster | None) -> list[tuple[str, str]]:
    """Networks that could be pods or nodes: plain NetworkPolicy matches those by address."""
    private = unknown_private(cluster)
    held = [cidr for cidr in verdict.cidrs if inside(parse(cidr), private) is not None]
    if not held:
        return []
    reason = (
        f"allowed networks that may be pods or nodes of the cluster ({', '.join(held[:5])}), whose ranges are unknown"
    )
    return [(reason, "give a cluster file with protected.pods and protected.nodes of that address family")]


def _cilium(verdict: ServiceVerdict, cluster: Cluster | None) -> list[tuple[str, str]]:
    version = cluster.version("cilium") if cluster else None
    wild = [name for name in verdict.domains if "*" in name]
    deep = [name for name in wild if name.startswith("**.")]
    if version is not None and version < (1, 19) and deep:
        return [(f"pattern {deep[0]} needs Cilium 1.19 or later", "write `*.` for one label, or upgrade")]
    if version is not None and version < (1, 18) and wild:
        return [(f"pattern {wild[0]} needs Cilium 1.18 or later", "name the hosts one by one, or upgrade")]
    return []


def _docker(verdict: ServiceVerdict, services: int) -> list[tuple[str, str]]:
    gaps = []
    if verdict.internet != "none":
        reason = f"internet: {verdict.internet}; a local sandbox has no network interface"
        gaps.append((reason, "drop the grant, or run the task on a cluster"))
    if services > 1:
        reason = f"{services} services; a local sandbox is a single container"
        gaps.append((reason, "keep one service, or run the task on a cluster"))
    if verdict.outside_ingress:
        reason = f"ingress on TCP {verdict.outside_ingress[0]} (human eval)"
        gaps.append((reason, "run human evals on a cluster"))
    if verdict.runtime_class not in DOCKER_RUNTIMES:
        reason = f"runtime class {verdict.runtime_class}; local sandboxes run on gVisor"
        gaps.append((reason, "drop it, or name gvisor"))
    return gaps


def _warn_private(
    backend: Backend, decision: Decision, cluster: Cluster | None, spec: SandboxSpec, report: Report
) -> None:
    """Address rules of plain NetworkPolicy see pods and nodes too: their ranges must be known."""
    unknown = unknown_families(cluster)
    open_outside = any(verdict.internet != "none" or verdict.outside_ingress for verdict in decision.matrix.values())
    if open_outside and unknown and backend == "kubernetes":
        families = " and ".join(f"IPv{version}" for version in unknown)
        report.warn(
            "W20",
            Place(spec.file),
            f"the cluster's pod and node ranges are not known for {families}: its private ranges stay closed, in both"
            " directions",
            "give a cluster file with protected.pods and protected.nodes of each address family that the cluster uses",
        )
    if open_outside and (cluster is None or not cluster.protected.control_plane):
        report.warn(
            "W20",
            Place(spec.file),
            "the control plane's addresses are not known: a public one is reachable where the internet is",
            "give a cluster file with protected.control_plane",
        )


def _warn_resolver(decision: Decision, cluster: Cluster | None, spec: SandboxSpec, report: Report) -> None:
    """Where the operator protects the node's resolver, a cluster that resolves through it alone answers no sandbox."""
    closed = closing_resolver(cluster)
    if closed is not None and any(verdict.dns in ("all", "listed") for verdict in decision.matrix.values()):
        report.warn(
            "W20",
            Place(spec.file),
            f"NodeLocal DNSCache (169.254.20.10) lies in the cluster's protected range {closed.name} {closed.net} and"
            " stays closed: names are resolved by the cluster's DNS pods alone",
            "if pods resolve through NodeLocal DNSCache, leave link-local out of protected: without being named it is"
            " closed too, but for port 53 of this address",
        )
