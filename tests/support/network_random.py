"""Random Compose and values files that mean something, with the cluster they are for.

Most are valid; a test drops the rejected ones. The vocabulary is small, so that grants, networks, isolated
services and protected ranges meet in one file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml
from hypothesis import strategies as st

NAMES = ["default", "web", "db", "cache", "scorer"]
NETWORKS = ["front", "back", "lab.one"]
DOMAINS = ["a.example", "*.b.example", "**.c.example", "w*.d.example", "*"]
CIDRS = [
    "203.0.113.0/24", "10.0.0.0/8", "10.20.0.0/16", "198.51.100.7/32", "128.0.0.0/1", "0.0.0.0/0", "::/0",
    "2001:db8::/32",
]  # fmt: skip
PORTS = [{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}, {"port": 8080, "protocol": "TCP"}]
ANY_PORTS = [*PORTS, {"port": 8080, "protocol": "UDP"}, {"port": 8080, "protocol": "SCTP"}, {"port": 9000}]
CLUSTERS: list[dict[str, Any] | None] = [
    None,
    {"protected": {"vpc": ["10.0.0.0/16"], "pods": ["10.64.0.0/14"], "nodes": ["10.128.0.0/20"]}},
    {
        "protected": {"vpc": "192.0.2.0/24", "control_plane": "198.51.100.64/28", "services": "10.96.0.0/12"},
        "cluster_name": "prod",
    },
]


@dataclass(frozen=True)
class Case:
    """One file to check and the settings it is checked with."""

    text: str
    kind: str
    human_eval: bool
    cluster: str | None


def _dump(data: Any) -> str:
    return yaml.safe_dump(data, sort_keys=False)


@st.composite
def _compose(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    networks = draw(st.lists(st.sampled_from(NETWORKS), max_size=3, unique=True))
    modes = draw(st.sampled_from([[None], [None, "none"], ["bridge"], ["bridge", "none"], [None, "none", "bridge"]]))
    services = {}
    for name in names:
        service: dict[str, Any] = {"image": "x"}
        mode = draw(st.sampled_from(modes))
        if mode:
            service["network_mode"] = mode
        if networks and mode != "none" and draw(st.integers(0, 4)):
            joined = draw(st.lists(st.sampled_from(networks), min_size=1, max_size=2, unique=True))
            service["networks"] = joined if draw(st.booleans()) else dict.fromkeys(joined)
        services[name] = service
    data: dict[str, Any] = {"services": services}
    if networks:
        internal = st.sampled_from([None, {}, {"internal": True}, {"internal": True}, {"driver": "bridge"}])
        data["networks"] = {name: draw(internal) for name in networks}
    extra: dict[str, Any] = {}
    if draw(st.integers(0, 3)) == 0:
        extra["allow_domains"] = draw(st.lists(st.sampled_from(DOMAINS[:4]), min_size=1, max_size=3, unique=True))
    if draw(st.integers(0, 5)) == 0:
        extra["allow_entities"] = ["world"]
    if extra:
        data["x-inspect_k8s_sandbox"] = extra
    return data


@st.composite
def _values(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    networks = draw(st.lists(st.sampled_from(NETWORKS), max_size=3, unique=True))
    services = {}
    for name in names:
        service: dict[str, Any] = {"image": "x"}
        if draw(st.integers(0, 4)) == 0:
            service["networkIsolated"] = True
        elif networks and draw(st.integers(0, 4)):
            service["networks"] = draw(st.lists(st.sampled_from(networks), min_size=1, max_size=2, unique=True))
        if draw(st.integers(0, 2)) == 0:
            service["ports"] = draw(st.lists(st.sampled_from(ANY_PORTS[:5]), min_size=1, max_size=4))
        services[name] = service
    data: dict[str, Any] = {"services": services}
    if networks:
        data["networks"] = {name: {} for name in networks}
    domains = draw(st.lists(st.sampled_from(DOMAINS), max_size=2, unique=True))
    cidrs = draw(st.lists(st.sampled_from(CIDRS), max_size=3, unique=True))
    if domains and draw(st.booleans()):
        data["allowDomains"] = domains
        if draw(st.integers(0, 2)) == 0:
            port: dict[str, Any] = {"port": draw(st.sampled_from([22, 8443])), "protocol": "TCP"}
            data["allowDomainsPorts"] = [port | ({"domain": domains[0]} if draw(st.booleans()) else {})]
    if cidrs and draw(st.booleans()):
        data["allowCIDR"] = cidrs
    if draw(st.integers(0, 6)) == 0:
        data["allowEntities"] = ["world"]
    return data


@st.composite
def cases(draw: st.DrawFn, *, name_filter: bool = False) -> Case:
    """A file, with or without human eval and cluster; `name_filter` gives every case a filtering gateway."""
    kind = draw(st.sampled_from(["compose", "values"]))
    data = draw(_compose() if kind == "compose" else _values())
    cluster = draw(st.sampled_from(CLUSTERS))
    if name_filter:
        cluster = {**(cluster or {}), "enforcement": {"policy": True, "name_filter": True}}
    human = draw(st.integers(0, 2)) == 0
    return Case(_dump(data), kind, human, None if cluster is None else _dump(cluster))
