"""Reader of one Compose service: mode, networks, runtime, and the hand-over of all other keys.

Owns R1, R2, R9, R10 and a service's R11; the forms of keys without a network meaning are in
`composekeys`.
"""

from __future__ import annotations

from network.composekeys import IGNORED_KEYS, SIMPLE_KEYS, ServiceKeys
from network.credentials import is_credential_name
from network.domains import DomainError, canonical, protected_name
from network.netnames import check_service_name
from network.nodes import Walker, is_null, join_path, kind_of, reject_keys
from network.problems import shown
from network.spec import Join, SandboxSpec, ServiceSpec
from network.yamlread import Map, Node, Scalar

_SERVICE_KEYS = frozenset({"network_mode", "networks", "ports", "runtime", "x-default"}) | SIMPLE_KEYS | IGNORED_KEYS


class ComposeService:
    """Reads one service; its problems go to the report, under the name as written."""

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
        reject_keys(self.walker, entry, self.path, unknown, _SERVICE_KEYS)
        if "deploy" in entry.items and ("mem_limit" in entry.items or "cpus" in entry.items):
            place = self.walker.place(join_path(self.path, "deploy"), entry.lines["deploy"])
            self.walker.report.warn("W21", place, "`deploy` wins over `mem_limit` and `cpus`", "keep one of the forms")
        self.service.gpu = keys.gpu
        self.service.user = keys.user
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
