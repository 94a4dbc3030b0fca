"""Reader of one service of a values file, and of labels.

Owns R23, the form of R25 and a service's part of R24, R41 and R42.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from network.credentials import is_credential_name
from network.grantread import read_port, unknown_keys
from network.hardening import read_security_context
from network.model import Port
from network.netnames import check_service_name
from network.nodes import Walker, is_null, join_path, kind_of
from network.problems import Place, shown
from network.spec import ExtraUse, Join, SandboxSpec, ServiceSpec
from network.yamlread import Map, Node, Scalar, Seq

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


def check_labels(entry: Map, key: str, path: str, walker: Walker) -> None:
    """R23 for every label or annotation under `key` that policies select pods by."""
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


_LISTS = frozenset({"args", "command", "env", "tolerations", "volumeMounts", "volumes", "initContainers"})
_MAPPINGS = frozenset({"resources", "readinessProbe", "livenessProbe", "securityContext", "nodeSelector"})
_TEXTS = frozenset({"image", "imagePullPolicy", "workingDir"})


def check_type(walker: Walker, key: str, node: Node, path: str) -> None:
    """R41 for a key of a service whose value is not of the chart's type."""
    if key in _LISTS and not isinstance(node, Seq):
        place = walker.place(path, node.line)
        walker.report.reject("R41", place, f"needs a list, found {kind_of(node)}", "write `- ` entries")
    elif key in _MAPPINGS:
        walker.mapping(node, path, "R41")
    elif key in _TEXTS:
        walker.text(node, path, "R41", "write a text, numbers in quotes")
    elif key == "dnsRecord":
        walker.boolean(node, path, "R41")


class ValuesService:
    """Reads one service; its problems go to the report, under the name as written."""

    def __init__(self, walker: Walker, name: str, line: int, spec: SandboxSpec) -> None:
        self.walker = walker
        self.path = join_path("services", name)
        self.spec = spec
        self.service = ServiceSpec(name, walker.place(self.path, line))
        self.records: list[tuple[str, Place]] = []
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
            "securityContext": self._security,
        }
        for key, child in entry.items.items():
            if not is_null(child):
                check_type(self.walker, key, child, join_path(self.path, key))
            if key in own and not is_null(child):
                own[key](child, join_path(self.path, key))
        for key in ("labels", "annotations"):
            check_labels(entry, key, self.path, self.walker)
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
            names.append(name)
            self.records.append((name, place))
        self.service.names = tuple(dict.fromkeys(names))

    def _init(self, node: Node, path: str) -> None:
        if isinstance(node, Seq) and node.items:
            place = self.walker.place(path, node.line)
            self.spec.extras.append(ExtraUse("init", place, "R24", "init containers"))

    def _volumes(self, node: Node, path: str) -> None:
        for index, item in enumerate(node.items if isinstance(node, Seq) else []):
            if not isinstance(item, Scalar) or not _VOLUME.fullmatch(item.text):
                place = self.walker.place(f"{path}[{index}]", item.line)
                self.spec.extras.append(ExtraUse("volume", place, "R24", f"volume {kind_of(item)}"))

    def _security(self, node: Node, path: str) -> None:
        self.service.user = read_security_context(self.walker, node, path)

    def _resources(self, node: Node, path: str) -> None:
        for part in ("limits", "requests"):
            amounts = node.items.get(part) if isinstance(node, Map) else None
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
