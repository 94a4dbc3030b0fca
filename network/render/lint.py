"""Invariants of rendered objects, each guarding a known pitfall; run on every rendering and in tests.

Works on the finished objects only, so that a renderer cannot exempt itself. Each finding names the
pitfall (`P1` ... `P23`), the object and the field. Pitfalls of cluster set-up (P15, P18) and of the
running cluster (P19's wait, P20-P22) cannot be seen in objects; docs/network.md covers them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from network.model import PodSpec
from network.render.fqdnschema import fqdn_problems
from network.render.names import ISOLATED, ROLE, SANDBOX

Object = Mapping[str, Any]
ALLOWED_ENTITIES = frozenset({"world", "none"})
DENIED_ENTITIES = frozenset({"all", "kube-apiserver"})
METADATA = ("169.254.169.254", "fd00:ec2::254", "fd20:ce::254", "fe80::1", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::")
NODE_RESOLVER = "169.254.20.10"
_PEERS: dict[str, dict[str, tuple[str, ...]]] = {
    "CiliumNetworkPolicy": {
        "ingress": ("fromEndpoints", "fromEntities"),
        "egress": ("toEndpoints", "toEntities", "toFQDNs", "toCIDRSet"),
        "egressDeny": ("toEntities", "toCIDRSet"),
    },
    "NetworkPolicy": {"ingress": ("from",), "egress": ("to",)},
    "FQDNNetworkPolicy": {"egress": ("matches",)},
}
_PEERS["CiliumClusterwideNetworkPolicy"] = _PEERS["CiliumNetworkPolicy"]
_POLICIES = frozenset(_PEERS)


def lint(objects: Sequence[Object], pods: Mapping[str, PodSpec], isolated: frozenset[str] = frozenset()) -> list[str]:
    """Every broken invariant as one line; empty when all hold."""
    findings: list[str] = []
    policies = [item for item in objects if item["kind"] in _POLICIES]
    for item in objects:
        name = f"{item['kind']} {item['metadata']['name']}"
        findings += [f"{finding} in {name}" for finding in _of_object(item)]
    findings += [*_order(objects), *_duplicates(objects)]
    if any(item["kind"] == "CiliumNetworkPolicy" for item in objects):  # what may grant `world`
        for item in objects:
            if item["kind"] == "CiliumClusterwideNetworkPolicy":
                findings += _open_ranges(item["spec"], (NODE_RESOLVER,))
    findings += _names(policies, pods)
    if any(item["kind"] != "DockerSandbox" for item in objects):
        findings += _selection(policies, pods, isolated)
    return findings


def _of_object(item: Object) -> Iterator[str]:
    kind, spec = item["kind"], item["spec"]
    if kind == "Service":
        if spec.get("clusterIP") != "None" or "type" in spec:
            yield "P17: a Service that is not headless"
        return
    if kind not in _POLICIES:
        return
    pods = spec.get("endpointSelector") or spec.get("podSelector") or {}
    if not pods.get("matchLabels"):
        yield "P6: selects pods without a label"
    if "ingressDeny" in spec:
        yield "P7: ingressDeny beats the 2222 rule"
    for direction, rules in _directions(kind, spec):
        if not rules:
            yield f"P6: empty {direction}"
        for rule in rules:
            yield from _rule(kind, direction, rule)
    if kind == "FQDNNetworkPolicy":
        yield from (f"P6: {problem}" for problem in fqdn_problems(item))
    clusterwide = kind == "CiliumClusterwideNetworkPolicy"
    if kind.startswith("Cilium"):
        for direction in ("ingress", "egress"):
            if clusterwide and direction not in spec:
                yield f"P4: the baseline leaves {direction} undenied"
        if clusterwide and not any("kube-apiserver" in rule.get("toEntities", ()) for rule in spec["egressDeny"]):
            yield "P2: the baseline does not deny kube-apiserver"
        if clusterwide:
            yield from _open_ranges(spec, METADATA)


def _directions(kind: str, spec: Object) -> Iterator[tuple[str, Any]]:
    for direction in ("ingress", "egress", "egressDeny", "ingressDeny"):
        if direction in spec:
            yield direction, spec[direction]


def _rule(kind: str, direction: str, rule: Object) -> Iterator[str]:
    known = _PEERS[kind].get(direction, ())
    peers = [key for key in known if key in rule]
    if not rule:
        yield f"P6: an empty {direction} rule"
        return
    if len(peers) != 1:
        yield f"P6: {direction} rule with {len(peers)} kinds of peers ({', '.join(rule)})"
    for key in peers:
        if not rule[key]:
            yield f"P6: empty {key}"
        for peer in rule[key]:
            yield from _peer(kind, direction, key, peer)
    for key in ("toPorts", "ports"):
        if key in rule:
            yield from _ports(rule, key)
    if "toPorts" in rule and "icmps" in rule:
        yield "P6: toPorts and icmps share a rule"
    if "toFQDNs" in rule:
        yield from _fqdn(rule)


def _peer(kind: str, direction: str, key: str, peer: Any) -> Iterator[str]:
    if key.endswith("Entities"):
        allowed = DENIED_ENTITIES if direction == "egressDeny" else ALLOWED_ENTITIES
        if peer not in allowed:
            yield f"P9: {direction} names the entity {peer!r}"
        return
    if key.endswith("Endpoints"):
        yield from _endpoint(peer.get("matchLabels") or {}, "k8s:io.kubernetes.pod.namespace")
    elif key in ("from", "to") and "podSelector" in peer:
        labels = peer["podSelector"].get("matchLabels") or {}
        spaces = (peer.get("namespaceSelector") or {}).get("matchLabels") or {}
        yield from _endpoint({**labels, **spaces}, "kubernetes.io/metadata.name")
    elif key in ("from", "to") and "ipBlock" not in peer:
        yield "P6: a peer that selects everything"
    cidr = peer.get("cidr") or (peer.get("ipBlock") or {}).get("cidr") if isinstance(peer, Mapping) else None
    if cidr is not None:
        yield from _cidr(peer.get("ipBlock") or peer)


def _endpoint(labels: Mapping[str, str], namespace_key: str) -> Iterator[str]:
    dns = labels.get(namespace_key) == "kube-system" and ("k8s:k8s-app" in labels or "k8s-app" in labels)
    if SANDBOX not in labels and not dns:
        yield "P23: a pod peer without the sandbox id"


def _cidr(entry: Object) -> Iterator[str]:
    net = ipaddress.ip_network(entry["cidr"])
    for inner in entry.get("except", ()):
        hole = ipaddress.ip_network(inner)
        if hole.version != net.version or hole.prefixlen <= net.prefixlen or hole.network_address not in net:
            yield f"P14: except {inner} is not strictly inside {net}"
    if "except" in entry and not entry["except"]:
        yield "P6: empty except"


def _ports(rule: Object, key: str) -> Iterator[str]:
    groups = rule[key] if key == "toPorts" else [{"ports": rule[key]}]
    if not groups:
        yield f"P6: empty {key}"
    for group in groups:
        ports = group.get("ports")
        if not ports:
            yield "P6: a port rule without ports"
            continue
        if key == "toPorts" and len(ports) > 40:
            yield "P6: more than 40 ports in one entry"
        if any("port" not in port or "protocol" not in port for port in ports):
            yield "P6: a port without number or protocol"


def _fqdn(rule: Object) -> Iterator[str]:
    for entry in rule["toFQDNs"]:
        text = entry.get("matchPattern") or entry.get("matchName") or ""
        if not text or not text.strip("*."):
            yield f"P5: toFQDNs {text!r}"
        if "**" in text and (not text.startswith("**.") or "**" in text[2:]):
            yield f"P8: toFQDNs {text!r} uses ** inside"
        if ("*" in text) != ("matchPattern" in entry):
            yield f"P8: {text!r} under the wrong key"
    for group in rule.get("toPorts") or [{}]:
        for port in group.get("ports", ()):
            checked = "serverNames" in group or "http" in (group.get("rules") or {})
            if port["port"] in ("80", "443") and port["protocol"] in ("TCP", "ANY") and not checked:
                yield f"P10: {port['protocol']} {port['port']} to a name without a check of SNI or Host"
    if not rule.get("toPorts"):
        yield "P10: a name without ports"


def _open_ranges(spec: Object, addresses: Sequence[str]) -> Iterator[str]:
    denied = [entry for rule in spec["egressDeny"] for entry in rule.get("toCIDRSet", ())]
    for text in addresses:
        address = ipaddress.ip_address(text)
        covered = any(
            address in ipaddress.ip_network(entry["cidr"])
            and not any(address in ipaddress.ip_network(hole) for hole in entry.get("except", ()))
            for entry in denied
        )
        if not covered:
            yield f"P14: the baseline does not deny {text}"


def _order(objects: Sequence[Object]) -> Iterator[str]:
    last_policy = max((i for i, item in enumerate(objects) if item["kind"] in _POLICIES), default=-1)
    for index, item in enumerate(objects):
        if item["kind"] not in _POLICIES and item["kind"] != "DockerSandbox" and index < last_policy:
            yield f"P19: {item['kind']} {item['metadata']['name']} comes before a policy"


def _duplicates(objects: Sequence[Object]) -> Iterator[str]:
    """Of two objects with one name the second would replace the first when applied."""
    seen: set[tuple[str, str, str]] = set()
    for item in objects:
        meta = item["metadata"]
        key = (item["kind"], meta.get("namespace", ""), meta["name"])
        if key in seen:
            yield f"P19: two objects are named {meta['name']} ({item['kind']})"
        seen.add(key)


def _names(policies: Sequence[Object], pods: Mapping[str, PodSpec]) -> Iterator[str]:
    """P1 and P11: names that can be connected to and names that can be asked are the same ones."""
    for item in policies:
        rules = item["spec"].get("egress", ()) if item["kind"].startswith("Cilium") else ()
        asked = {
            (entry.get("matchPattern") or entry.get("matchName"))
            for rule in rules
            for group in rule.get("toPorts", ())
            for entry in (group.get("rules") or {}).get("dns", ())
        }
        named = {
            (entry.get("matchPattern") or entry.get("matchName")) for rule in rules for entry in rule.get("toFQDNs", ())
        }
        name = item["metadata"]["name"]
        if missing := named - asked - {None}:
            yield f"P1: {sorted(map(str, missing))} can never be resolved in {name}"
        leaks = {text for text in asked - named if text and not text.endswith(".svc.cluster.local")}
        world = any("world" in rule.get("toEntities", ()) for rule in rules)
        if leaks and not (leaks == {"*"} and world):
            yield f"P11: {sorted(leaks)} can be asked but not reached in {name}"
        for rule in rules:
            groups = rule.get("toPorts", ())
            wide = [group for group in groups if any(port.get("port") == "53" for port in group.get("ports", ()))]
            if wide and "toEndpoints" in rule and not all((group.get("rules") or {}).get("dns") for group in wide):
                yield f"P1: port 53 of the resolver without a DNS rule in {name}"


def _selection(policies: Sequence[Object], pods: Mapping[str, PodSpec], isolated: frozenset[str]) -> Iterator[str]:
    """P4 and the labels: every pod is default-denied both ways by objects of its own sandbox."""
    own = [item for item in policies if item["kind"] in ("CiliumNetworkPolicy", "NetworkPolicy")]
    for service, pod in pods.items():
        if ROLE not in pod.labels or SANDBOX not in pod.labels:
            yield f"P23: pod {service} lacks the platform's labels"
        if (service in isolated) != (ISOLATED in pod.labels):
            yield f"P4: pod {service} and its isolation label disagree"
        for direction in ("ingress", "egress"):
            if not any(_denies(item, direction) and _selects(item, pod.labels) for item in own):
                yield f"P4: no object of the sandbox denies {direction} of {service}"
        if service in isolated:
            yield from _isolated_gets_nothing(own, service, pod.labels)


def _isolated_gets_nothing(own: Sequence[Object], service: str, labels: Mapping[str, str]) -> Iterator[str]:
    for item in own:
        if not _selects(item, labels):
            continue
        for direction in ("ingress", "egress"):
            for rule in item["spec"].get(direction, ()):
                inert = rule.get("fromEntities") == ["none"] or rule.get("toEntities") == ["none"]
                if not inert and item["metadata"]["name"].partition(".")[2] != "ssh":
                    yield f"P7: isolated {service} is allowed {direction} by {item['metadata']['name']}"


def _denies(item: Object, direction: str) -> bool:
    spec = item["spec"]
    return direction.capitalize() in spec.get("policyTypes", ()) or bool(spec.get(direction))


def _selects(item: Object, labels: Mapping[str, str]) -> bool:
    pods = item["spec"].get("endpointSelector") or item["spec"].get("podSelector") or {}
    if any(labels.get(key) != value for key, value in (pods.get("matchLabels") or {}).items() if ":" not in key):
        return False
    for expression in pods.get("matchExpressions") or ():
        if (expression["key"] in labels) == (expression["operator"] == "DoesNotExist"):
            return False
    return True
