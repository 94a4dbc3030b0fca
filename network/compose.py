"""Reader of Compose files: the keys that can be honoured, everything else refused by name.

Owns the top level: R5, R6, R8, R11-R13 and its part of R41. Services are read in `composeservice`, the
decision table itself is in `verdicts`. An explicit null counts as an absent key, as Compose has it,
except where a key's mere presence matters.
"""

from __future__ import annotations

from network.composeservice import ComposeService
from network.credentials import is_credential_name
from network.dnsrecords import check_records
from network.grantread import read_domains, read_entities
from network.netnames import check_network_name
from network.nodes import Walker, is_null, join_path, kind_of, limit_services, reject_keys
from network.problems import shown
from network.spec import NetworkSpec, SandboxSpec
from network.yamlread import Map, Scalar

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


def read_compose(root: Map, walker: Walker) -> SandboxSpec:
    """The sandbox that a Compose file describes, after variables were substituted."""
    spec = SandboxSpec("compose", walker.file)
    unknown = [key for key in root.items if key not in _TOP_KEYS and not is_credential_name(key)]
    reject_keys(walker, root, "", unknown, _TOP_KEYS)
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
        spec.services[name] = ComposeService(walker.of(name), name, entry.lines[name], spec).read(node)
    joins = (join for service in spec.services.values() for join in service.networks.values())
    check_records(spec, [(alias, join.place) for join in joins for alias in join.aliases], walker)
    return spec


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
