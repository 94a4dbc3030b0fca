"""Reader of Compose files: the keys that can be honoured, everything else refused by name.

Owns R1, R2, R5-R13 and the Compose part of R41; the decision table itself is in `verdicts`. An
explicit null counts as an absent key, as Compose has it, except where a key's mere presence matters.
"""

from __future__ import annotations

import re

from network.composekeys import IGNORED_KEYS, SIMPLE_KEYS, ServiceKeys
from network.credentials import is_credential_name
from network.domains import DomainError, canonical, protected_name
from network.grantread import read_domains, read_entities
from network.nodes import Walker, is_null, join_path, kind_of, limit_services
from network.problems import shown
from network.spec import Join, NetworkSpec, SandboxSpec, ServiceSpec
from network.yamlread import Map, Node, Scalar

SERVICE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
NETWORK_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,53}[A-Za-z0-9])?")
EXTENSIONS = ("x-k8s", "x-inspect_k8s_sandbox")
_TOP_KEYS = ("services", "networks", "volumes", "version", "secrets", "x-local", *EXTENSIONS)
_NETWORK_KEYS = ("driver", "internal")
_EXTENSION_KEYS = (
    "allow_domains",
    "allow_entities",
    "service_account_name",
    "service_account_create",
    "automount_service_account_token",
)
_SERVICE_KEYS = frozenset({"network_mode", "networks", "ports", "runtime", "x-default"}) | SIMPLE_KEYS | IGNORED_KEYS


def read_compose(root: Map, walker: Walker) -> SandboxSpec:
    """The sandbox that a Compose file describes, after variables were substituted."""
    spec = SandboxSpec("compose", walker.file)
    unknown = [key for key in root.items if key not in _TOP_KEYS and not is_credential_name(key)]
    _reject_keys(walker, root, "", unknown, _TOP_KEYS)
    _networks(root, walker, spec)
    _volumes(root, walker)
    _extension(root, walker, spec)
    services = root.items.get("services")
    line = root.line if services is None else services.line
    entry = walker.mapping(services, "services", "R41", null=True) if services is not None else None
    if entry is None or not entry.items:
        if services is None or entry is not None:
            fix = "add `services:` with at least one service"
            walker.report.reject("R41", walker.place("services", line), "the file defines no service", fix)
        return spec
    for name, node in limit_services(walker, entry):
        spec.services[name] = _Service(walker.of(name), name, entry.lines[name], spec).read(node)
    return spec


def check_service_name(walker: Walker, name: str, path: str, line: int) -> None:
    """R41 for a name that cannot be a host name and a label."""
    if not SERVICE_NAME.fullmatch(name):
        walker.report.reject(
            "R41",
            walker.place(path, line),
            f"service name {shown(name)} cannot be a host name",
            "use at most 63 lower-case letters, digits and inner hyphens",
        )


def check_network_name(walker: Walker, name: str, path: str, line: int) -> None:
    """R8 for a network name that cannot be a label."""
    if not NETWORK_NAME.fullmatch(name):
        walker.report.reject(
            "R8",
            walker.place(path, line),
            f"network name {shown(name)} cannot be a label",
            "use at most 55 letters, digits, dots, hyphens and underscores",
        )


def _reject_keys(
    walker: Walker, entry: Map, path: str, unknown: list[str], known: tuple[str, ...] | frozenset[str]
) -> None:
    """One R11 for all unsupported keys of one mapping."""
    if not unknown:
        return
    listed = ", ".join(shown(key) + walker.hint(key, known) for key in unknown[:20])
    more = f" and {len(unknown) - 20} more" if len(unknown) > 20 else ""
    first = unknown[0]
    walker.report.reject(
        "R11",
        walker.place(join_path(path, first), entry.lines[first]),
        f"unsupported key{'s' if len(unknown) > 1 else ''}: {listed}{more}",
        "remove what cannot be honoured; supported: " + ", ".join(sorted(known)),
    )


def _networks(root: Map, walker: Walker, spec: SandboxSpec) -> None:
    node = root.items.get("networks")
    entry = walker.mapping(node, "networks", "R8", null=True) if node is not None else None
    for name, value in (entry.items if entry else {}).items():
        path = join_path("networks", name)
        line = entry.lines[name] if entry else 0
        check_network_name(walker, name, path, line)
        settings = walker.mapping(value, path, "R8", null=True) or Map(line)
        unknown = [key for key in settings.items if key not in _NETWORK_KEYS]
        if unknown:
            walker.report.reject(
                "R6",
                walker.place(join_path(path, unknown[0]), settings.lines[unknown[0]]),
                f"unsupported network key{'s' if len(unknown) > 1 else ''}: {', '.join(map(shown, unknown[:20]))}",
                "only `driver: bridge` and `internal` can be honoured; remove the rest",
            )
        internal = settings.items.get("internal")
        driver = settings.items.get("driver")
        plain = driver is None or is_null(driver) or (isinstance(driver, Scalar) and driver.text == "bridge")
        if driver is not None and not plain:
            where = walker.place(join_path(path, "driver"), driver.line)
            walker.report.reject("R5", where, f"network driver is {kind_of(driver)}", "use `driver: bridge`, or none")
        is_internal = internal is not None and walker.boolean(internal, join_path(path, "internal"), "R8")
        spec.networks[name] = NetworkSpec(name, walker.place(path, line), bool(is_internal), plain)


def _volumes(root: Map, walker: Walker) -> None:
    node = root.items.get("volumes")
    entry = walker.mapping(node, "volumes", "R41", null=True) if node is not None else None
    for name, value in (entry.items if entry else {}).items():
        if not is_null(value) and not (isinstance(value, Map) and not value.items):
            place = walker.place(join_path("volumes", name), value.line)
            walker.report.reject("R41", place, "a top-level volume takes no settings", f"write `{name}:` alone")


def _extension(root: Map, walker: Walker, spec: SandboxSpec) -> None:
    present = [name for name in EXTENSIONS if name in root.items]
    if len(present) > 1:
        walker.report.reject(
            "R12",
            walker.place(present[1], root.lines[present[1]]),
            "x-k8s and x-inspect_k8s_sandbox are two spellings of the same block",
            "keep one of them",
        )
    for name in present:
        entry = walker.mapping(root.items[name], name, "R13", null=True)
        if entry is None:
            continue
        for key, node in entry.items.items():
            path = join_path(name, key)
            if key == "allow_domains":
                spec.grants.domains.extend(read_domains(walker, node, path, "R13"))
            elif key == "allow_entities":
                spec.grants.entities.extend(read_entities(walker, node, path, "R13"))
            elif key not in _EXTENSION_KEYS and not is_credential_name(key):
                hint = "CIDRs need a values file" if "cidr" in key.lower() else "known: " + ", ".join(_EXTENSION_KEYS)
                message = f"unknown key {shown(key)}{walker.hint(key, _EXTENSION_KEYS)}"
                walker.report.reject("R13", walker.place(path, entry.lines[key]), message, hint)


class _Service:
    def __init__(self, walker: Walker, name: str, line: int, spec: SandboxSpec) -> None:
        self.walker = walker
        self.path = join_path("services", name)
        self.spec = spec
        self.service = ServiceSpec(name, walker.place(self.path, line))
        check_service_name(walker, name, self.path, line)

    def read(self, node: Node) -> ServiceSpec:
        """The service; its problems are in the report."""
        entry = self.walker.mapping(node, self.path, "R41")
        if entry is None:
            return self.service
        keys = ServiceKeys(self.walker, self.service.name)
        own = {
            "network_mode": self._mode,
            "networks": self._networks,
            "ports": self._ports,
            "runtime": self._runtime,
            "x-default": self._default,
        }
        unknown: list[str] = []
        for key, child in entry.items.items():
            path = join_path(self.path, key)
            if key in own:
                own[key](child, path)
            elif not keys.check(key, child, path) and not is_credential_name(key):
                unknown.append(key)
        _reject_keys(self.walker, entry, self.path, unknown, _SERVICE_KEYS)
        self.service.gpu = keys.gpu
        self.spec.extras.extend(keys.extras)
        if self.service.isolated and "networks" in entry.items:
            self.walker.report.reject(
                "R2",
                self.walker.place(join_path(self.path, "networks"), entry.lines["networks"]),
                "`network_mode: none` and `networks` ask for opposite things",
                "join a network with `internal: true` for siblings only, or drop `networks` to stay isolated",
            )
            self.service.networks = {}
        return self.service

    def _mode(self, node: Node, path: str) -> None:
        place = self.walker.place(path, node.line)
        if is_null(node):
            self.walker.report.warn(
                "W21", place, "a null network_mode counts as not set, which is not `none`", "write `none` in quotes"
            )
            return
        self.service.mode_written = True
        self.service.mode_place = place
        value = node.value if isinstance(node, Scalar) else None
        if value == "none":
            self.service.mode = "none"
        elif value == "bridge":
            self.service.mode = "bridge"
        else:
            self.walker.report.reject(
                "R1",
                place,
                f"network_mode of service {self.service.name} is {kind_of(node)}",
                "only `none` and `bridge` work here; leave it out for siblings without internet",
            )

    def _networks(self, node: Node, path: str) -> None:
        self.service.networks_place = self.walker.place(path, node.line)
        if isinstance(node, Map):
            for name, value in node.items.items():
                item_path = join_path(path, name)
                aliases = self._endpoint(name, value, item_path)
                self.service.networks[name] = Join(self.walker.place(item_path, node.lines[name]), aliases)
        elif not is_null(node):
            for name, place in self.walker.strings(node, path, "R8"):
                self.service.networks.setdefault(name, Join(place))

    def _endpoint(self, name: str, node: Node, path: str) -> tuple[str, ...]:
        entry = self.walker.mapping(node, path, "R8", null=True)
        if entry is None:
            return ()
        unknown = [key for key in entry.items if key != "aliases"]
        if unknown:
            self.walker.report.reject(
                "R9",
                self.walker.place(join_path(path, unknown[0]), entry.lines[unknown[0]]),
                f"cannot honour {', '.join(map(shown, unknown[:20]))} on network {shown(name)}",
                "only `aliases` works; addresses are given by the platform",
            )
        aliases = entry.items.get("aliases")
        if aliases is None or is_null(aliases):
            return ()
        return tuple(
            alias for alias, place in self.walker.strings(aliases, join_path(path, "aliases"), "R41")
            if self._is_alias(alias, place.line, place.path)
        )  # fmt: skip

    def _is_alias(self, alias: str, line: int | None, path: str) -> bool:
        fix = "use a host name of lower-case letters, digits, hyphens and dots"
        place = self.walker.place(path, line)
        try:
            name = canonical(alias)
        except DomainError as error:
            self.walker.report.reject("R41", place, f"alias {shown(alias)}: {error}", fix)
            return False
        if "*" in name or name != alias:
            self.walker.report.reject("R41", place, f"alias {shown(alias)} is no plain host name", fix)
            return False
        protected = protected_name(name)
        if protected is not None:
            self.walker.report.reject("R15", place, f"alias {name} is a name of the cluster or of metadata", fix)
            return False
        return True

    def _ports(self, node: Node, path: str) -> None:
        if is_null(node):
            return
        self.walker.report.reject(
            "R10",
            self.walker.place(path, node.line),
            "publishing ports on the host is impossible here",
            "drop `ports`: siblings reach every port already (a values file can limit them)",
        )

    def _runtime(self, node: Node, path: str) -> None:
        if not is_null(node):
            self.service.runtime = self.walker.text(node, path, "R41", "name a runtime class, such as gvisor")
            self.service.runtime_place = self.walker.place(path, node.line)

    def _default(self, node: Node, path: str) -> None:
        if self.walker.boolean(node, path, "R41"):
            self.service.x_default = self.walker.place(path, node.line)


__all__ = ["NETWORK_NAME", "SERVICE_NAME", "check_network_name", "check_service_name", "read_compose"]
