"""The document that `render --json` prints, as the evaluator reads it: objects, pods, namespace, cluster.

A document does not say in which namespace and cluster its pods run; its objects do. Two answers to either
question are an error, since a verdict for the wrong pods would be worthless.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from network.evaluate.errors import EvaluateError
from network.evaluate.flows import read_objects
from network.evaluate.identities import Identity, pod
from network.evaluate.labels import CLUSTER_KEY, CLUSTER_NAME
from network.evaluate.reading import Reader
from network.evaluate.rules import Rule, read_port
from network.evaluate.traffic import NOTHING, Traffic

__all__ = ["Document", "Service", "read_document"]

#: Kinds that live in a namespace and say where the sandbox is.
_NAMESPACED = frozenset({"CiliumNetworkPolicy", "NetworkPolicy", "FQDNNetworkPolicy"})
_CONTAINER = "DockerSandbox"
_CONTAINER_KEYS = frozenset({"service", "networkMode", "runtime", "publish", "siblingPorts"})


@dataclass(frozen=True)
class Service:
    """One service: its pod as an identity, the names published inside it, and its runtime class.

    `offline` services run in a container that has no network interface, where no object applies; `limited` is the
    traffic that their container says siblings would be limited to, None without a limit.
    """

    identity: Identity
    hosts: tuple[str, ...]
    runtime_class: str | None
    offline: bool
    limited: Traffic | None = None


@dataclass(frozen=True)
class Document:
    """Everything there is to judge."""

    rules: tuple[Rule, ...]
    services: Mapping[str, Service]
    namespace: str
    cluster: str


def read_document(document: Mapping[str, Any]) -> Document:
    """Read `{"objects": [...], "pods": {NAME: {"labels", "hosts", "runtime_class"}}}`; other keys are notes.

    Raises EvaluateError naming the object or pod that cannot be judged.
    """
    root = Reader(document, "")
    if document.get("ok") is False:
        codes = [item.at("code").value for item in root.at("problems").items()]
        told = ", ".join(dict.fromkeys(str(code) for code in codes))
        raise EvaluateError("document", f"its rendering was refused ({told or 'no reason given'}): nothing to evaluate")
    for key in ("objects", "pods"):
        if not root.has(key):
            raise EvaluateError("document", f"it has no {key}; expected what `gauntlet network render --json` prints")
    objects = list(root.at("objects").items())
    for item in objects:
        item.at("kind").text()  # a name that can be looked up
    containers = dict(_offline_service(item) for item in objects if item.at("kind").value == _CONTAINER)
    policies = [item.value for item in objects if item.at("kind").value != _CONTAINER]
    namespace = _namespace(root, objects)
    cluster = _only("cluster", _clusters(policies)) or CLUSTER_NAME
    services = {}
    for name in root.at("pods").mapping():
        spec = root.at("pods").at(name)
        runtime = spec.at("runtime_class")
        services[name] = Service(
            pod(namespace, spec.at("labels").text_mapping(), cluster=cluster),
            tuple(item.text() for item in spec.at("hosts").items()),
            None if runtime.value is None else runtime.text(),
            name in containers,
            containers.get(name),
        )
    if containers and (policies or set(containers) != set(services)):
        raise EvaluateError("document", "containers without network and policy objects are mixed")
    return Document(tuple(read_objects(policies, cluster)), services, namespace, cluster)


def _offline_service(item: Reader) -> tuple[str, Traffic | None]:
    """The service of a container object, which must have no interface and no published port, and its limit."""
    spec = item.at("spec")
    spec.mapping(_CONTAINER_KEYS)
    if spec.at("networkMode").text() != "none" or list(spec.at("publish").items()):
        raise spec.fail("only a container without network can be judged")
    limited = None
    if spec.has("siblingPorts"):
        limited = NOTHING
        for port in spec.at("siblingPorts").items():
            port.mapping(frozenset({"port", "protocol"}))
            limited |= read_port(port, port.at("port").integer(), None, port.at("protocol").text())
    return spec.at("service").text(), limited


def _namespace(root: Reader, objects: list[Reader]) -> str:
    if root.has("namespace"):
        return root.at("namespace").text()
    found = {
        item.at("metadata").at("namespace").optional_text("default")
        for item in objects
        if item.at("kind").value in _NAMESPACED
    }
    return _only("namespace", found) or "default"


def _only(what: str, found: set[str]) -> str | None:
    if len(found) > 1:
        raise EvaluateError("document", f"its objects name more than one {what}: {', '.join(sorted(found))}")
    return next(iter(found), None)


def _clusters(value: Any) -> set[str]:
    """Every cluster that a selector anywhere in the objects names."""
    return set(_cluster_values(value))


def _cluster_values(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            if str(key).rpartition(":")[2] == CLUSTER_KEY and isinstance(item, str):
                yield item
            else:
                yield from _cluster_values(item)
    elif isinstance(value, list):
        for item in value:
            yield from _cluster_values(item)
