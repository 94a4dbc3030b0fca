"""Label sets and label selectors, with Cilium's label sources.

A label is (source, key, value); the source of a pod's own labels is `k8s`, of hosts and outside
addresses `reserved`. A selector key without a source means `any` and matches every source, the
reserved ones included. A negative requirement is met where the key is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from network.evaluate.reading import Reader

__all__ = ["NAMESPACE_KEY", "NAMESPACE_LABELS_PREFIX", "LabelSet", "Requirement", "Selector", "read_selector"]

NAMESPACE_KEY = "io.kubernetes.pod.namespace"
#: Labels of a pod's namespace appear on the pod under this prefix.
NAMESPACE_LABELS_PREFIX = "io.cilium.k8s.namespace.labels."
CLUSTER_KEY = "io.cilium.k8s.policy.cluster"
#: The name of a cluster that is given none, Cilium's default.
CLUSTER_NAME = "default"

_SELECTOR_KEYS = frozenset({"matchLabels", "matchExpressions"})
_OPERATORS = {"In", "NotIn", "Exists", "DoesNotExist"}


@dataclass(frozen=True)
class LabelSet:
    """The labels of one identity."""

    labels: tuple[tuple[str, str, str], ...]
    _by_key: Mapping[str, tuple[tuple[str, str], ...]] = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        index: dict[str, tuple[tuple[str, str], ...]] = {}
        for source, key, value in self.labels:
            index[key] = (*index.get(key, ()), (source, value))
        object.__setattr__(self, "_by_key", index)

    @classmethod
    def of(cls, source: str, labels: Mapping[str, str]) -> LabelSet:
        """All labels of one source."""
        return cls(tuple(sorted((source, key, value) for key, value in labels.items())))

    def __or__(self, other: LabelSet) -> LabelSet:
        return LabelSet(tuple(sorted({*self.labels, *other.labels})))

    def find(self, source: str, key: str) -> str | None:
        """The value under `key`, None when there is none; source `any` looks at all of them."""
        for found, value in self._by_key.get(key, ()):
            if source in ("any", found):
                return value
        return None


@dataclass(frozen=True)
class Requirement:
    """One condition of a selector; `Equals` is what an entry of matchLabels means."""

    source: str
    key: str
    operator: str
    values: tuple[str, ...] = ()

    def met_by(self, labels: LabelSet) -> bool:
        """Whether the labels satisfy it."""
        value = labels.find(self.source, self.key)
        match self.operator:
            case "In" | "Equals":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case _:
                return value is None


@dataclass(frozen=True)
class Selector:
    """A conjunction of requirements; the empty one matches everything that has labels at all."""

    requirements: tuple[Requirement, ...]

    def matches(self, labels: LabelSet) -> bool:
        """Whether all requirements are met."""
        return all(requirement.met_by(labels) for requirement in self.requirements)

    def names_key(self, key: str) -> bool:
        """Whether a requirement is on this key, given without source, by source k8s or any."""
        return any(item.key == key and item.source in ("k8s", "any") for item in self.requirements)

    def names_prefix(self, prefix: str) -> bool:
        """Whether a requirement's key of source k8s or any begins with the prefix."""
        return any(item.key.startswith(prefix) and item.source in ("k8s", "any") for item in self.requirements)

    @property
    def names_reserved(self) -> bool:
        """Whether a requirement is on a reserved label."""
        return any(item.source == "reserved" for item in self.requirements)

    def plus(self, *more: Requirement) -> Selector:
        """This selector with further requirements."""
        return Selector((*self.requirements, *more))

    def without(self, unwanted: Iterable[Requirement]) -> Selector:
        """This selector less some requirements."""
        gone = set(unwanted)
        return Selector(tuple(item for item in self.requirements if item not in gone))


def _split(key: str, default_source: str) -> tuple[str, str]:
    source, colon, rest = key.partition(":")
    return (source, rest) if colon and source else (default_source, key if not colon else rest)


def read_selector(reader: Reader, default_source: str, key_prefix: str = "") -> Selector:
    """A Kubernetes label selector; `key_prefix` is put before every key (namespace labels)."""
    reader.mapping(_SELECTOR_KEYS)
    requirements = []
    for key, value in reader.at("matchLabels").text_mapping().items():
        source, name = _split(key, default_source)
        requirements.append(Requirement(source, key_prefix + name, "Equals", (value,)))
    for item in reader.at("matchExpressions").items():
        item.mapping(frozenset({"key", "operator", "values"}))
        source, name = _split(item.at("key").text(), default_source)
        operator = item.at("operator").text()
        if operator not in _OPERATORS:
            raise item.fail(f"unknown operator {operator!r}")
        values = tuple(value.text() for value in item.at("values").items())
        if bool(values) != (operator in ("In", "NotIn")):
            raise item.fail(f"{operator} with values {list(values)}")
        requirements.append(Requirement(source, key_prefix + name, operator, values))
    return Selector(tuple(requirements))
