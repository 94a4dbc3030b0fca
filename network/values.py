"""Reader of values files: the sandbox chart's own format, taken as written.

Owns R23, R24 (recorded as `ExtraUse`), R25, R28, R42, the file's half of R26 and the values part of
R41. A values file that defines no `default` service gets the chart's implicit one, on gVisor.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from network.cidrs import Protected
from network.compose import check_network_name, check_service_name
from network.credentials import is_credential_name
from network.domains import overlaps
from network.grantread import (
    read_cidrs,
    read_domains,
    read_entities,
    read_extra_ports,
    read_port,
    unknown_keys,
)
from network.model import Port
from network.nodes import Walker, is_null, join_path, kind_of, limit_services
from network.problems import shown
from network.spec import ExtraUse, Join, NetworkSpec, SandboxSpec, ServiceSpec
from network.yamlread import Map, Node, Scalar, Seq

IMPLICIT_RUNTIME = "gvisor"
TOP_KEYS = (
    "additionalResources", "allowCIDR", "allowDomains", "allowDomainsPorts", "allowEntities", "annotations",
    "automountServiceAccountToken", "corednsCommand", "corednsImage", "corednsResources", "corednsSecurityContext",
    "global", "imagePullSecrets", "labels", "networkPolicy", "networks", "serviceAccountCreate", "serviceAccountName",
    "services", "volumes",
)  # fmt: skip
SERVICE_KEYS = (
    "additionalDnsRecords", "annotations", "args", "command", "dnsRecord", "env", "image", "imagePullPolicy",
    "initContainers", "labels", "livenessProbe", "networkIsolated", "networks", "nodeSelector", "ports",
    "readinessProbe", "resources", "runtimeClassName", "securityContext", "tolerations", "volumeMounts", "volumes",
    "workingDir",
)  # fmt: skip
_RESERVED_NAMES = frozenset({"sandbox-id", "sandbox_id", "service", "role", "part-of", "instance", "name", "isolated"})
_RESERVED_PREFIXES = ("io.cilium", "k8s:", "any:", "reserved:", "io.kubernetes.pod", "gauntlet.dev/", "inspect/")
_VOLUME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?:/[^:]*")
_RECORD = re.compile(r"[A-Za-z0-9_]([-A-Za-z0-9_.]{0,251}[A-Za-z0-9_])?")
_GPU_SUFFIX = ".com/gpu"


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
        _labels(root, key, "", walker)
    services = root.items.get("services")
    entry = None if services is None or is_null(services) else walker.mapping(services, "services", "R41")
    for name, node in limit_services(walker, entry or Map(root.line)):
        line = entry.lines[name] if entry else root.line
        spec.services[name] = _Service(walker.of(name), name, line, spec).read(node)
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


def _labels(entry: Map, key: str, path: str, walker: Walker) -> None:
    node = entry.items.get(key)
    path = join_path(path, key)
    labels = None if node is None or is_null(node) else walker.mapping(node, path, "R41")
    for name in labels.items if labels else ():
        local = name.rpartition("/")[2].lower()
        reserved = local in _RESERVED_NAMES or local.startswith(("network", "net."))
        if reserved or name.lower().startswith(_RESERVED_PREFIXES):
            walker.report.reject(
                "R23",
                walker.place(join_path(path, name), labels.lines[name] if labels else None),
                f"{shown(name)} is reserved: policies select sandboxes by such keys",
                "choose another key with a prefix of your own",
            )


class _Service:
    def __init__(self, walker: Walker, name: str, line: int, spec: SandboxSpec) -> None:
        self.walker = walker
        self.path = join_path("services", name)
        self.spec = spec
        self.service = ServiceSpec(name, walker.place(self.path, line))
        check_service_name(walker, name, self.path, line)

    def read(self, node: Node) -> ServiceSpec:
        """The service; its problems are in the report. Nulls were reported already (R28)."""
        entry = None if is_null(node) else self.walker.mapping(node, self.path, "R41")
        if entry is None:
            return self.service
        known = SERVICE_KEYS + tuple(key for key in entry.items if is_credential_name(key))
        unknown_keys(self.walker, entry, self.path, known)
        own = {
            "networkIsolated": self._isolated,
            "networks": self._networks,
            "ports": self._ports,
            "runtimeClassName": self._runtime,
            "additionalDnsRecords": self._records,
            "initContainers": self._init,
            "volumes": self._volumes,
            "resources": self._resources,
        }
        for key, child in entry.items.items():
            if key in own and not is_null(child):
                own[key](child, join_path(self.path, key))
        for key in ("labels", "annotations"):
            _labels(entry, key, self.path, self.walker)
        return self.service

    def _isolated(self, node: Node, path: str) -> None:
        if self.walker.boolean(node, path, "R41"):
            self.service.mode = "none"
            self.service.mode_written = True
            self.service.mode_place = self.walker.place(path, node.line)

    def _networks(self, node: Node, path: str) -> None:
        self.service.networks_place = self.walker.place(path, node.line)
        for name, place in self.walker.strings(node, path, "R8"):
            self.service.networks.setdefault(name, Join(place))

    def _ports(self, node: Node, path: str) -> None:
        if not isinstance(node, Seq):
            place = self.walker.place(path, node.line)
            message = f"needs a list, found {kind_of(node)}"
            self.walker.report.reject("R41", place, message, "write `- {port: 80, protocol: TCP}` entries")
            return
        ports: set[Port] = set()
        for index, item in enumerate(self.walker.limited(node.items, path, node.line)):
            item_path = f"{path}[{index}]"
            entry = self.walker.mapping(item, item_path, "R41")
            if entry is not None:
                unknown_keys(self.walker, entry, item_path, ("port", "protocol"))
                port = read_port(self.walker, entry, item_path, default="TCP")
                ports |= {port} if port else set()
        if node.items:
            self.service.ports = canonical_ports(ports)
            self.service.ports_place = self.walker.place(path, node.line)

    def _runtime(self, node: Node, path: str) -> None:
        self.service.runtime = self.walker.text(node, path, "R41", "name a runtime class, such as gvisor")
        self.service.runtime_place = self.walker.place(path, node.line)

    def _records(self, node: Node, path: str) -> None:
        names: list[str] = []
        for text, place in self.walker.strings(node, path, "R41"):
            name = text.lower()
            if not _RECORD.fullmatch(text) or ".." in text:
                fix = "use letters, digits, `_`, `-` and `.` only"
                self.walker.report.reject("R25", place, f"DNS record {shown(text)} is no plain host name", fix)
                continue
            shadowed = [] if self.walker.report.crowded else self._shadowed(name)
            if shadowed:
                message = f"DNS record {name} would shadow the allowed domain {shadowed[0]}"
                self.walker.report.reject("R25", place, message, "drop the record or the domain")
                continue
            names.append(name)
        self.service.names = tuple(dict.fromkeys(names))

    def _shadowed(self, name: str) -> list[str]:
        domains = (domain.name for domain in self.spec.grants.domains if domain.name != "*")
        return [domain for domain in domains if overlaps(domain, name)]

    def _init(self, node: Node, path: str) -> None:
        if not (isinstance(node, Seq | Map) and not node.items):
            place = self.walker.place(path, node.line)
            self.spec.extras.append(ExtraUse("init", place, "R24", "init containers"))

    def _volumes(self, node: Node, path: str) -> None:
        for index, item in enumerate(node.items if isinstance(node, Seq) else [node]):
            if not isinstance(item, Scalar) or not _VOLUME.fullmatch(item.text):
                place = self.walker.place(f"{path}[{index}]", item.line)
                self.spec.extras.append(ExtraUse("volume", place, "R24", f"volume {kind_of(item)}"))

    def _resources(self, node: Node, path: str) -> None:
        entry = self.walker.mapping(node, path, "R41")
        for part in ("limits", "requests"):
            amounts = entry.items.get(part) if entry else None
            for key, amount in (amounts.items if isinstance(amounts, Map) else {}).items():
                if key.endswith(_GPU_SUFFIX) and not (isinstance(amount, Scalar) and amount.text in ("0", "")):
                    self.service.gpu = self.walker.place(join_path(join_path(path, part), key), amount.line)


def canonical_ports(ports: Iterable[Port]) -> tuple[Port, ...]:
    """Sorted, without duplicates; ANY stands for TCP, UDP and SCTP of the same port together."""
    listed = set(ports)
    every = {
        port.port
        for port in listed
        if port.protocol == "ANY" or {Port(port.port, name) for name in ("TCP", "UDP", "SCTP")} <= listed
    }
    rest = {port for port in listed if port.port not in every}
    return tuple(sorted(rest | {Port(number, "ANY") for number in every}))
