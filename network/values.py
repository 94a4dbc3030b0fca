"""Reader of values files: the sandbox chart's own format, taken as written.

Owns the top level: R24 (recorded as `ExtraUse`), R28, R42, the file's half of R26 and its part of R41.
Services are read in `valuesservice`. A values file that defines no `default` service gets the chart's
implicit one, on gVisor.
"""

from __future__ import annotations

from collections.abc import Iterable

from network.cidrs import Protected
from network.credentials import is_credential_name
from network.dnsrecords import Record, check_records
from network.grantread import (
    read_cidrs,
    read_domains,
    read_entities,
    read_extra_ports,
    unknown_keys,
)
from network.netnames import check_network_name
from network.nodes import Walker, is_null, join_path, limit_services
from network.problems import shown
from network.spec import ExtraUse, NetworkSpec, SandboxSpec, ServiceSpec
from network.valuesservice import ValuesService, check_labels
from network.yamlread import Map, Node, Scalar, Seq

IMPLICIT_RUNTIME = "gvisor"
TOP_KEYS = (
    "additionalResources", "allowCIDR", "allowDomains", "allowDomainsPorts", "allowEntities", "annotations",
    "automountServiceAccountToken", "corednsCommand", "corednsImage", "corednsResources", "corednsSecurityContext",
    "global", "imagePullSecrets", "labels", "networkPolicy", "networks", "serviceAccountCreate", "serviceAccountName",
    "services", "volumes",
)  # fmt: skip


def read_values(root: Map, walker: Walker, protected: Iterable[Protected]) -> SandboxSpec:
    """The sandbox that a values file describes."""
    spec = SandboxSpec("values", walker.file)
    _reject_nulls(root, walker)
    known = TOP_KEYS + tuple(key for key in root.items if is_credential_name(key))
    unknown_keys(walker, root, "", known)
    _grants(root, walker, spec, tuple(protected))
    _policy(root, walker)
    _networks(root, walker, spec)
    _operator_only(root, walker, spec)
    for key in ("labels", "annotations"):
        check_labels(root, key, "", walker)
    services = root.items.get("services")
    entry = None if services is None or is_null(services) else walker.mapping(services, "services", "R41")
    records: list[Record] = []
    for name, node in limit_services(walker, entry or Map(root.line)):
        line = entry.lines[name] if entry else root.line
        reader = ValuesService(walker.of(name), name, line, spec)
        spec.services[name] = reader.read(node)
        records += reader.records
    check_records(spec, records, walker)
    if "default" not in spec.services:
        place = walker.of("default").place("services.default", None)
        spec.services["default"] = ServiceSpec(
            "default", place, runtime=IMPLICIT_RUNTIME, runtime_place=place, implicit=True
        )
        walker.report.warn(
            "W15",
            place,
            f"the file defines no `default` service: the chart adds one on runtime {IMPLICIT_RUNTIME}",
            "define services.default",
        )
    return spec


def _reject_nulls(root: Map, walker: Walker) -> None:
    found: dict[str | None, list[tuple[str, int]]] = {}

    def walk(node: Node, path: str, service: str | None) -> None:
        if isinstance(node, Map):
            for key, child in node.items.items():
                walk(child, join_path(path, key), key if path == "services" else service)
        elif isinstance(node, Seq):
            for index, child in enumerate(node.items):
                walk(child, f"{path}[{index}]", service)
        elif node.value is None:
            found.setdefault(service, []).append((path, node.line))

    walk(root, "", None)
    for service, places in found.items():
        inner = walker if service is None else walker.of(service)
        listed = ", ".join(path for path, _ in places[:20])
        more = f" and {len(places) - 20} more" if len(places) > 20 else ""
        inner.report.reject(
            "R28",
            inner.place(*places[0]),
            f"null at {listed}{more}: a null erases the chart's default",
            "remove the key, or write {} or []",
        )


def _grants(root: Map, walker: Walker, spec: SandboxSpec, protected: tuple[Protected, ...]) -> None:
    def node(key: str) -> Node | None:
        found = root.items.get(key)
        return None if is_null(found) else found

    grants = spec.grants
    if (domains := node("allowDomains")) is not None:
        grants.domains = read_domains(walker, domains, "allowDomains", "R41")
    if (cidrs := node("allowCIDR")) is not None:
        grants.cidrs = read_cidrs(walker, cidrs, "allowCIDR", "R41", protected)
    if (entities := node("allowEntities")) is not None:
        grants.entities = read_entities(walker, entities, "allowEntities", "R41")
    if (ports := node("allowDomainsPorts")) is not None:
        grants.ports = read_extra_ports(walker, ports, "allowDomainsPorts", grants.domains)


def _policy(root: Map, walker: Walker) -> None:
    node = root.items.get("networkPolicy")
    entry = None if node is None or is_null(node) else walker.mapping(node, "networkPolicy", "R41")
    if entry is None:
        return
    unknown_keys(walker, entry, "networkPolicy", ("enabled",))
    enabled = entry.items.get("enabled")
    if enabled is None or is_null(enabled):
        return
    if walker.boolean(enabled, "networkPolicy.enabled", "R41") is False:
        walker.report.reject(
            "R26",
            walker.place("networkPolicy.enabled", enabled.line),
            "the file turns network policy off: nothing would be enforced",
            "remove networkPolicy; open what is needed with allowDomains, allowCIDR or allowEntities",
        )


def _networks(root: Map, walker: Walker, spec: SandboxSpec) -> None:
    node = root.items.get("networks")
    entry = None if node is None or is_null(node) else walker.mapping(node, "networks", "R8")
    for name, value in (entry.items if entry else {}).items():
        path = join_path("networks", name)
        line = entry.lines[name] if entry else 0
        check_network_name(walker, name, path, line)
        settings = None if is_null(value) else walker.mapping(value, path, "R8")
        for key in settings.items if settings else ():
            place = walker.place(join_path(path, key), value.line)
            if key in ("internal", "driver"):
                message = f"`{key}` means nothing in a values file: the internet is granted by allow* keys only"
                walker.report.warn("W12", place, message, "remove it")
            else:
                walker.report.reject("R6", place, f"unsupported network key {shown(key)}", "write `{}`")
        spec.networks[name] = NetworkSpec(name, walker.place(path, line))


def _operator_only(root: Map, walker: Walker, spec: SandboxSpec) -> None:
    resources = root.items.get("additionalResources")
    if resources is not None and not (isinstance(resources, Seq | Map) and not resources.items):
        place = walker.place("additionalResources", root.lines["additionalResources"])
        spec.extras.append(ExtraUse("resources", place, "R24", "additionalResources"))
    volumes = root.items.get("volumes")
    entry = None if volumes is None or is_null(volumes) else walker.mapping(volumes, "volumes", "R41")
    for name, value in (entry.items if entry else {}).items():
        if not is_null(value) and not (isinstance(value, Map) and not value.items):
            place = walker.place(join_path("volumes", name), value.line)
            spec.extras.append(ExtraUse("volume", place, "R24", f"volume {shown(name)} with settings of its own"))
    token = root.items.get("automountServiceAccountToken")
    if isinstance(token, Scalar) and token.value is not False and token.value is not None:
        place = walker.place("automountServiceAccountToken", token.line)
        walker.report.warn("W21", place, "puts a cluster credential into the sandbox", "set it to false")
