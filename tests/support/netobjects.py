"""Random policy objects and flows in the subset of the three engines' kinds that the renderers use.

The universe is small on purpose: a few labels, addresses and ports, so that rules overlap, shadow and
contradict each other instead of missing every flow. Legal but odd forms (empty rules, empty peer lists,
peer-less ports) are in it, since that is where implementations part.
"""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]

NAMESPACE = "sb"
PODS: dict[str, Json] = {
    "a": {"namespace": NAMESPACE, "labels": {"id": "1", "svc": "a", "net": "x"}},
    "b": {"namespace": NAMESPACE, "labels": {"id": "1", "svc": "b", "net": "x"}},
    "c": {"namespace": NAMESPACE, "labels": {"id": "1", "svc": "c", "isolated": "yes"}},
    "d": {"namespace": NAMESPACE, "labels": {"id": "2", "svc": "a", "net": "x"}},
    "bare": {"namespace": NAMESPACE, "labels": {}},
    "twin": {"namespace": "elsewhere", "labels": {"id": "1", "svc": "a", "net": "x"}},
    "dns": {"namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
}
PEERS: dict[str, Json] = {
    "outside": {"ip": "203.0.113.7"},
    "in-ten": {"ip": "10.0.0.5"},
    "in-hole": {"ip": "10.0.1.5"},
    "metadata": {"ip": "169.254.169.254"},
    "outside6": {"ip": "2001:db8::7"},
    "metadata6": {"ip": "fd00:ec2::254"},
    "site": {"ip": "198.51.100.1", "names": ["a.example"]},
    "sub": {"ip": "198.51.100.2", "names": ["www.a.example"]},
    "deep": {"ip": "198.51.100.3", "names": ["x.y.a.example", "other.test"]},
    "api": {"ip": "198.51.100.9", "reserved": ["kube-apiserver"]},
    "host": {"entity": "host"},
    "node": {"entity": "remote-node"},
    "api-inside": {"entity": "kube-apiserver"},
    "health": {"entity": "health"},
    "unmanaged": {"entity": "unmanaged"},
    "world": {"entity": "world"},
}

_LABELS = st.sampled_from([("id", "1"), ("id", "2"), ("svc", "a"), ("svc", "b"), ("net", "x"), ("k8s:svc", "c")])
_EXPRESSIONS = st.one_of(
    st.builds(
        lambda key, op, values: {"key": key, "operator": op, "values": values},
        st.sampled_from(["id", "svc", "isolated"]),
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from(["1", "2", "a", "b", "yes"]), min_size=1, max_size=2, unique=True),
    ),
    st.builds(
        lambda key, op: {"key": key, "operator": op},
        st.sampled_from(["svc", "isolated", "net"]),
        st.sampled_from(["Exists", "DoesNotExist"]),
    ),
)
CIDRS = ["0.0.0.0/0", "::/0", "10.0.0.0/8", "10.0.1.0/24", "169.254.0.0/16", "203.0.113.7/32", "2001:db8::/32"]
_HOLES = {"0.0.0.0/0": ["10.0.0.0/8", "169.254.0.0/16"], "10.0.0.0/8": ["10.0.1.0/24"], "::/0": ["fd00:ec2::254/128"]}
ENTITIES = ["world", "all", "cluster", "host", "remote-node", "kube-apiserver", "health", "unmanaged", "none"]
NAMES = ["a.example", "WWW.a.example.", "*.a.example", "w*.a.example", "*", "**.a.example", "other.test"]


@st.composite
def selectors(draw: st.DrawFn, *, plain: bool = False, namespaced: bool = False) -> Json:
    """A label selector; `plain` keeps to keys without a source, `namespaced` may name a namespace."""
    pairs = dict(draw(st.lists(_LABELS, max_size=2)))
    if plain:
        pairs = {key.removeprefix("k8s:"): value for key, value in pairs.items()}
    if namespaced and draw(st.integers(0, 3)) == 0:
        key = draw(st.sampled_from(["k8s:io.kubernetes.pod.namespace", "io.kubernetes.pod.namespace"]))
        pairs[key] = draw(st.sampled_from([NAMESPACE, "kube-system", "elsewhere"]))
    result: Json = {"matchLabels": pairs} if pairs else {}
    expressions = draw(st.lists(_EXPRESSIONS, max_size=1))
    return result | ({"matchExpressions": expressions} if expressions else {})


def subjects(*, plain: bool = False) -> st.SearchStrategy[Json]:
    """Selectors of pods that are governed; most of them select some pod, or nothing would be judged."""
    broad: list[Json] = [
        {"matchLabels": {"id": "1"}},
        {"matchLabels": {"svc": "a"}},
        {"matchLabels": {"net": "x"}},
        {"matchLabels": {"id": "1"}, "matchExpressions": [{"key": "isolated", "operator": "DoesNotExist"}]},
        {},
    ]
    return st.one_of(st.sampled_from(broad), selectors(plain=plain, namespaced=not plain))


@st.composite
def cidr_blocks(draw: st.DrawFn) -> Json:
    """A CIDR with or without exceptions inside it."""
    cidr = draw(st.sampled_from(CIDRS))
    holes = draw(st.lists(st.sampled_from(_HOLES[cidr]), unique=True)) if cidr in _HOLES else []
    return {"cidr": cidr} | ({"except": holes} if holes else {})


@st.composite
def _names(draw: st.DrawFn) -> Json:
    text = draw(st.sampled_from(NAMES))
    return {"matchPattern": text} if "*" in text or draw(st.booleans()) else {"matchName": text}


@st.composite
def _cilium_port(draw: st.DrawFn) -> Json:
    port = draw(st.sampled_from([0, 22, 53, 80, 443, 1000]))
    result: Json = {"port": str(port)}
    if port and draw(st.integers(0, 4)) == 0:
        result["endPort"] = port + draw(st.integers(0, 30))
    protocol = draw(st.sampled_from([None, "ANY", "TCP", "UDP", "SCTP"]))
    return result | ({"protocol": protocol} if protocol else {})


@st.composite
def _to_ports(draw: st.DrawFn, *, egress: bool, deny: bool) -> list[Json]:
    entries: list[Json] = []
    for _ in range(draw(st.integers(0, 2))):
        form = draw(st.integers(0, 6)) if egress and not deny else 6
        if form == 0:
            rules = {"dns": draw(st.lists(_names(), min_size=1, max_size=2))}
            entries.append(
                {"ports": [{"port": "53", "protocol": draw(st.sampled_from(["UDP", "ANY"]))}], "rules": rules}
            )
        elif form == 1:
            entries.append({"ports": [{"port": "443", "protocol": "TCP"}], "serverNames": ["a.example"]})
        elif form == 2:
            rules = {"http": [{"host": "a[.]example"}]}
            entries.append({"ports": [{"port": "80", "protocol": "TCP"}], "rules": rules})
        else:
            entries.append({"ports": draw(st.lists(_cilium_port(), min_size=0, max_size=2))})
    return entries


@st.composite
def _icmps(draw: st.DrawFn) -> list[Json]:
    fields = st.sampled_from(
        [{"type": 8}, {"family": "IPv6", "type": 128}, {"family": "IPv4", "type": "EchoRequest"}, {"type": 3}]
    )
    return [{"fields": draw(st.lists(fields, min_size=1, max_size=2))}]


@st.composite
def cilium_rules(draw: st.DrawFn, direction: str, deny: bool, clusterwide: bool) -> Json:
    """One rule of a direction; at most one kind of peer list, as Cilium demands."""
    word = "from" if direction == "ingress" else "to"
    rule: Json = {}
    kind = draw(st.sampled_from(["Endpoints", "Entities", "CIDR", "CIDRSet", "FQDNs", "nobody", "anyone"]))
    if kind == "Endpoints":
        rule[f"{word}Endpoints"] = draw(st.lists(selectors(namespaced=True), max_size=2))
    elif kind == "Entities":
        rule[f"{word}Entities"] = draw(st.lists(st.sampled_from(ENTITIES), max_size=2))
    elif kind == "CIDR":
        rule[f"{word}CIDR"] = draw(st.lists(st.sampled_from(CIDRS), max_size=2))
    elif kind == "CIDRSet":
        rule[f"{word}CIDRSet"] = draw(st.lists(cidr_blocks(), max_size=2))
    elif kind == "FQDNs" and word == "to" and not deny:
        rule["toFQDNs"] = draw(st.lists(_names(), max_size=2))
    elif kind == "nobody":
        rule[f"{word}Entities"] = ["none"]
    what = draw(st.integers(0, 3))
    if what == 0:
        rule["icmps"] = draw(_icmps())
    elif what < 3:
        rule["toPorts"] = draw(_to_ports(egress=direction == "egress", deny=deny))
    return rule


@st.composite
def cilium_policies(draw: st.DrawFn) -> Json:
    """A CiliumNetworkPolicy in the sandbox's namespace or a clusterwide one."""
    clusterwide = draw(st.integers(0, 2)) == 0
    spec: Json = {"endpointSelector": draw(subjects())}
    for direction in draw(st.lists(st.sampled_from(["ingress", "egress"]), min_size=1, max_size=2, unique=True)):
        allows = draw(st.lists(cilium_rules(direction, False, clusterwide), max_size=3))
        denies = draw(st.lists(cilium_rules(direction, True, clusterwide), max_size=1))
        if allows:
            spec[direction] = allows
        if denies:
            spec[f"{direction}Deny"] = denies
    if len(spec) == 1:
        spec["egress"] = [{"toEntities": ["none"]}]
    if draw(st.integers(0, 3)) == 0:
        flags = st.fixed_dictionaries({}, optional={"ingress": st.booleans(), "egress": st.booleans()})
        spec["enableDefaultDeny"] = draw(flags)
    metadata: Json = {"name": "p"} if clusterwide else {"name": "p", "namespace": NAMESPACE}
    kind = "CiliumClusterwideNetworkPolicy" if clusterwide else "CiliumNetworkPolicy"
    return {"apiVersion": "cilium.io/v2", "kind": kind, "metadata": metadata, "spec": spec}


@st.composite
def _kubernetes_rules(draw: st.DrawFn, direction: str) -> Json:
    rule: Json = {}
    peers = []
    for _ in range(draw(st.integers(0, 2))):
        kind = draw(st.integers(0, 3))
        if kind == 0:
            peers.append({"ipBlock": draw(cidr_blocks())})
        elif kind == 1:
            peers.append({"podSelector": draw(selectors(plain=True))})
        else:
            names = {"kubernetes.io/metadata.name": draw(st.sampled_from([NAMESPACE, "kube-system"]))}
            spaces: Json = draw(st.sampled_from([{}, {"matchLabels": names}]))
            peers.append({"namespaceSelector": spaces})
            if kind == 2:
                peers[-1]["podSelector"] = draw(selectors(plain=True))
    if peers or draw(st.booleans()):
        rule["from" if direction == "ingress" else "to"] = peers
    ports = []
    for _ in range(draw(st.integers(0, 2))):
        port: Json = {"protocol": draw(st.sampled_from(["TCP", "UDP", "SCTP"]))}
        if draw(st.integers(0, 3)):
            port["port"] = draw(st.sampled_from([22, 53, 80, 443]))
            if draw(st.integers(0, 4)) == 0:
                port["endPort"] = port["port"] + draw(st.integers(0, 30))
        ports.append(port)
    return rule | ({"ports": ports} if ports else {})


@st.composite
def network_policies(draw: st.DrawFn) -> Json:
    """A Kubernetes NetworkPolicy whose types name exactly the directions it has rules for, or more."""
    spec: Json = {"podSelector": draw(subjects(plain=True))}
    types = draw(st.lists(st.sampled_from(["Ingress", "Egress"]), min_size=1, max_size=2, unique=True))
    for name in types:
        rules = draw(st.lists(_kubernetes_rules(name.lower()), max_size=2))
        if rules or draw(st.booleans()):
            spec[name.lower()] = rules
    spec["policyTypes"] = types
    metadata = {"name": "p", "namespace": draw(st.sampled_from([NAMESPACE, NAMESPACE, "elsewhere"]))}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec}


def _named(objects: list[Json]) -> list[Json]:
    for index, item in enumerate(objects):
        item["metadata"]["name"] = f"p{index}"
    return objects


def policy_sets() -> st.SearchStrategy[list[Json]]:
    """One to four objects of all kinds, each with a name of its own."""
    return st.lists(st.one_of(cilium_policies(), network_policies()), min_size=1, max_size=4).map(_named)


_PORTS = {
    "TCP": (22, 53, 80, 443, 1000, 1001, 40000),
    "UDP": (53, 80, 443, 1010),
    "SCTP": (22, 80, 40000),
    "ICMP": (8, 3),
    "ICMPv6": (128, 1),
}


def every_flow() -> list[Json]:
    """All flows of the universe with a pod at one end at least, in a fixed order."""
    ends = sorted({**PODS, **PEERS})
    return [
        {"from": source, "to": destination, "protocol": protocol, "port": port}
        for source, destination in itertools.product(ends, ends)
        if (source in PODS or destination in PODS) and source != destination
        for protocol, ports in _PORTS.items()
        for port in ports
    ]
