"""Hypothesis strategies of network files: valid ones, and near-valid ones with a piece out of place.

`valid_compose` and `valid_values` draw documents that are accepted more often than not; `near` damages
one at a random place. Documents are plain data; `as_yaml` writes them the way a person would.
"""

from __future__ import annotations

import copy
from typing import Any

import yaml
from hypothesis import strategies as st

NAMES = ("default", "web", "db", "vault", "worker")
NETWORKS = ("front", "back", "task-net", "a.b", "default")
DOMAINS = ("target.example.com", "*.cdn.example.com", "api.example.org", "**.deep.example.net", "b.example")
CIDRS = ("198.51.100.0/24", "203.0.113.7/32", "10.20.0.0/16", "2001:db8::/48", "160.0.0.0/4")
JUNK: tuple[Any, ...] = (
    None, "", "none", "*", 0, -1, 80, True, 1.5, [], {}, [None], {"a": None}, "host", "a b", "http://x", "0.0.0.0/0",
    "169.254.169.254/32", "${X}", "${", "$$", "x" * 300, ["*"], {"internal": "false"}, "é", "\x7f", ["world"], "all",
)  # fmt: skip

ports = st.fixed_dictionaries(
    {
        "port": st.sampled_from((22, 80, 443, 8080, 65535)),
        "protocol": st.sampled_from(("TCP", "UDP", "SCTP", "ANY")),
    }
)


@st.composite
def valid_compose(draw: st.DrawFn) -> dict[str, Any]:
    """A Compose document that breaks no rule of form; the decision table may still refuse it."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True))
    declared = draw(st.lists(st.sampled_from(NETWORKS), max_size=3, unique=True))
    services: dict[str, Any] = {}
    for name in names:
        service: dict[str, Any] = {"image": f"{name}:1"}
        mode = draw(st.sampled_from((None, None, None, "none", "bridge")))
        if mode is not None:
            service["network_mode"] = mode
        if declared and mode != "none":
            joined = draw(st.lists(st.sampled_from(declared), max_size=2, unique=True))
            if joined:
                as_map = draw(st.booleans())
                service["networks"] = dict.fromkeys(joined) if as_map else joined
        if draw(st.integers(0, 9)) == 0:
            service["runtime"] = draw(st.sampled_from(("gvisor", "kata", "CLUSTER_DEFAULT")))
        services[name] = service
    document: dict[str, Any] = {"services": services}
    if declared:
        kinds = st.sampled_from((None, {}, {"internal": True}, {"internal": True}, {"driver": "bridge"}))
        document["networks"] = {name: draw(kinds) for name in declared}
    if draw(st.integers(0, 3)) == 0:
        block: dict[str, Any] = {"allow_domains": draw(st.lists(st.sampled_from(DOMAINS), max_size=3, unique=True))}
        if draw(st.integers(0, 4)) == 0:
            block["allow_entities"] = ["world"]
        document["x-k8s"] = block
    return document


@st.composite
def valid_values(draw: st.DrawFn) -> dict[str, Any]:
    """A values document that is accepted."""
    names = draw(st.lists(st.sampled_from(NAMES), max_size=5, unique=True))
    declared = draw(st.lists(st.sampled_from(NETWORKS), max_size=3, unique=True))
    document: dict[str, Any] = {}
    services: dict[str, Any] = {}
    for name in names:
        service: dict[str, Any] = {"image": f"{name}:1"}
        if declared and draw(st.booleans()):
            service["networks"] = draw(st.lists(st.sampled_from(declared), max_size=2, unique=True))
        if draw(st.integers(0, 3)) == 0:
            service["networkIsolated"] = draw(st.booleans())
        if draw(st.integers(0, 2)) == 0:
            service["ports"] = draw(st.lists(ports, max_size=3))
        services[name] = service
    if services or draw(st.booleans()):
        document["services"] = services
    if declared:
        document["networks"] = {name: {} for name in declared}
    domains = draw(st.lists(st.sampled_from((*DOMAINS, "*")), max_size=3, unique=True))
    if domains and draw(st.booleans()):
        document["allowDomains"] = domains
        if draw(st.integers(0, 2)) == 0:
            document["allowDomainsPorts"] = [{"port": 22, "protocol": "TCP", "domain": domains[0]}, {"port": 8443}]
    if draw(st.booleans()):
        document["allowCIDR"] = draw(st.lists(st.sampled_from(CIDRS), max_size=3, unique=True))
    if draw(st.integers(0, 5)) == 0:
        document["allowEntities"] = ["world"]
    return document


@st.composite
def near(draw: st.DrawFn, documents: st.SearchStrategy[dict[str, Any]]) -> Any:
    """A document with one to three pieces replaced, removed, renamed or added."""
    document: Any = copy.deepcopy(draw(documents))
    for _ in range(draw(st.integers(1, 3))):
        document = _damaged(draw, document)
    return document


def _damaged(draw: st.DrawFn, node: Any) -> Any:
    if isinstance(node, dict) and node and draw(st.integers(0, 4)):
        key = draw(st.sampled_from(sorted(node, key=str)))
        action = draw(st.integers(0, 5))
        if action == 0:
            node[draw(st.sampled_from(("extra", "networks", "network_mode", "api_key", "x-default", 7)))] = junk(draw)
        elif action == 1:
            node[str(key).upper()] = node.pop(key)
        else:
            node[key] = _damaged(draw, node[key])
        return node
    if isinstance(node, list) and node and draw(st.booleans()):
        index = draw(st.integers(0, len(node) - 1))
        node[index] = _damaged(draw, node[index])
        return node
    return junk(draw)


def junk(draw: st.DrawFn) -> Any:
    """A value that belongs nowhere in particular."""
    return copy.deepcopy(draw(st.sampled_from(JUNK)))


def as_yaml(document: Any) -> str:
    """The document as YAML text."""
    return str(yaml.dump(document, sort_keys=False, allow_unicode=True))


isolations = st.sampled_from(
    (
        None,
        "isolation: standard",
        "isolation: {runtime_class: gvisor}",
        "isolation: {level: strict, runtime_class: gvisor}",
        "isolation: {level: strict, runtime_class: gvisor, allow_domains: [t.example], allow_cidr: [198.51.100.0/24]}",
        "human_eval: true",
    )
)
