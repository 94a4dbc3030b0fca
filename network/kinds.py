"""Is it a Compose or a values file? Decided by keys that only one of them has, then by the file's name."""

from __future__ import annotations

from pathlib import PurePath

from network.compose import EXTENSIONS
from network.composekeys import SIMPLE_KEYS
from network.spec import Kind
from network.values import TOP_KEYS
from network.valuesservice import SERVICE_KEYS
from network.yamlread import Map, Node, Seq

_COMPOSE_TOP = frozenset({"version", "secrets", "configs", "name", "include", *EXTENSIONS})
_VALUES_TOP = frozenset(TOP_KEYS) - {"services", "networks", "volumes"}
_COMPOSE_SERVICE = (SIMPLE_KEYS | {"network_mode", "runtime", "x-default", "build", "expose", "depends_on"}) - set(
    SERVICE_KEYS
)
_VALUES_SERVICE = frozenset(SERVICE_KEYS) - SIMPLE_KEYS - {"networks", "ports", "image", "labels", "annotations"}


def _lists_ports(node: Node | None) -> bool:
    """Whether ports are written as a values file has them: `- {port: 80}`."""
    return isinstance(node, Seq) and any(isinstance(item, Map) and "port" in item.items for item in node.items)


def detect_kind(root: Map, file: str) -> Kind:
    """The kind of file; `compose` when nothing tells."""
    compose = sum(key in _COMPOSE_TOP for key in root.items)
    values = sum(key in _VALUES_TOP for key in root.items)
    services = root.items.get("services")
    for service in services.items.values() if isinstance(services, Map) else ():
        for key in service.items if isinstance(service, Map) else ():
            compose += key in _COMPOSE_SERVICE
            values += key in _VALUES_SERVICE
        values += isinstance(service, Map) and _lists_ports(service.items.get("ports"))
    if compose != values:
        return "compose" if compose > values else "values"
    return "values" if "values" in PurePath(file).name.lower() else "compose"
