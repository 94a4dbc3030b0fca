"""What must hold of every rendered sandbox, checked on the finished objects by meaning, not by form.

Strangers and infrastructure are put at the other end of every pod and judged with the flow engine; `strangers` judges
whom rules name at all, `named` whether names are checked. Only the hygiene part looks at form: empty rules and lists
mean opposite things in the two policy kinds, so that none may appear at all. Knows no renderer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from network.evaluate.document import Document, Service, read_document
from network.evaluate.flows import POLICY_KINDS
from network.evaluate.identities import Identity, address, entity, pod
from network.evaluate.matrix import evaluate
from network.evaluate.named import WEB, samples
from network.evaluate.names import covered
from network.evaluate.outside import closed_addresses
from network.evaluate.rules import Named
from network.evaluate.strangers import SANDBOX_LABEL, SSH, foreign_peers
from network.evaluate.traffic import Traffic
from network.evaluate.view import DNS, RESOLVER_ADDRESS, RESOLVER_APPS, RESOLVER_NAMESPACE, View

__all__ = ["Violation", "find", "violations"]

CLUSTERWIDE = "CiliumClusterwideNetworkPolicy"
_PEER_LISTS = (
    "fromEndpoints", "toEndpoints", "fromEntities", "toEntities", "fromCIDR", "toCIDR", "fromCIDRSet", "toCIDRSet",
    "toFQDNs", "from", "to", "matches",
)  # fmt: skip
_PORT_LISTS = ("toPorts", "ports", "icmps")
#: Addresses that hand out credentials or belong to the node, by cloud.
METADATA = (
    "169.254.169.254", "169.254.170.2", "169.254.170.23", "169.254.169.252", "168.63.129.16", "100.100.100.200",
    "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fe80::1",
    "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::",  # the same through a NAT64 or 6to4 gateway
)  # fmt: skip


@dataclass(frozen=True)
class Violation:
    """One thing that must not be. `service` is None where it concerns all of them."""

    service: str | None
    message: str

    def __str__(self) -> str:
        return self.message if self.service is None else f"{self.service}: {self.message}"

    def to_json(self) -> dict[str, Any]:
        """The form of a problem of `check`; it has no line, since objects have none."""
        return {
            "code": "V1",
            "name": "RENDERED_VIOLATION",
            "message": self.message,
            "service": self.service,
            "path": None,
            "line": None,
            "fix": "render the file again, and apply what was rendered as it is",
            "file": None,
        }


def violations(document: Mapping[str, Any], closed: Iterable[str] = ()) -> list[str]:
    """Everything that is wrong with a rendered document, one sentence each; empty when nothing is. See `find`."""
    return [str(item) for item in find(document, closed)]


def find(document: Mapping[str, Any], closed: Iterable[str] = ()) -> list[Violation]:
    """Everything that must not be in what `render --json` printed.

    `closed` are ranges (CIDRs) that no service may reach besides metadata: the cluster's protected ones. Raises
    EvaluateError for an object that cannot be judged.
    """
    read = read_document(document)
    ranges = tuple(closed)
    found = []
    for index, item in enumerate(document["objects"]):
        if item["kind"] in POLICY_KINDS:
            bare = {key: item[key] for key in ("spec", "specs") if key in item}
            found += [Violation(None, text) for text in _hygiene(bare, f"objects[{index}]")]
    sandboxes = {service.identity.labels.find("k8s", SANDBOX_LABEL) for service in read.services.values()}
    if len(sandboxes) > 1:
        found.append(Violation(None, f"its pods belong to several sandboxes: {sorted(map(str, sandboxes))}"))
    shared: dict[Any, Any] = {}
    for name, service in read.services.items():
        if not service.offline:
            view = View(read, service, shared)
            found += [Violation(name, text) for text in _exposures(read, view, ranges)]
    return found + list(_baseline_dependence(document))


def _hygiene(value: Any, where: str) -> Iterator[str]:
    """Rules and lists that are empty, and ports without a peer, anywhere in the objects."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _hygiene(item, f"{where}[{index}]")
    if not isinstance(value, Mapping):
        return
    for key, item in value.items():
        here = f"{where}.{key}"
        if key in ("ingress", "egress", "ingressDeny", "egressDeny") and not isinstance(item, (bool, str)):
            if not item:
                yield f"{here} is empty"
            for index, rule in enumerate(item if isinstance(item, list) else ()):
                if not rule:
                    yield f"{here}[{index}] is an empty rule"
                elif isinstance(rule, Mapping) and not any(rule.get(peer) for peer in _PEER_LISTS):
                    yield f"{here}[{index}] has no peers"
        elif key in (*_PEER_LISTS, *_PORT_LISTS, "except", "serverNames", "fields") and not item:
            yield f"{here} is empty"
        elif key == "enableDefaultDeny":
            yield f"{here} says when the default deny holds, which no sandbox leaves open"
        elif key in ("fromEndpoints", "toEndpoints") and isinstance(item, list) and {} in item:
            yield f"{here} selects every pod of the namespace"
        yield from _hygiene(item, here)


def _exposures(document: Document, view: View, closed: tuple[str, ...]) -> Iterator[str]:
    service, egress, ingress = view.service, view.egress, view.ingress
    for governed in (egress, ingress):
        if not governed.isolated:
            yield f"{governed.direction} is not denied by default"
        yield from foreign_peers(document, service, governed)
    for text, identity in _strangers(document, service, samples(egress.rules)):
        if egress.permitted(identity):
            yield f"it can connect to {text}"
        # The node's own processes are let in by the engine itself, for the kubelet's probes.
        if not identity.is_host and ingress.permitted(identity) - _ssh(identity):
            yield f"{text} can connect to it"
    for network, found in closed_addresses(egress.rules, closed):
        if egress.permitted(address(str(found), samples(egress.rules))):
            yield f"it can connect to {found} of the protected range {network}"
    yield from _names(view)
    yield from _node_resolver(document, view)


def _names(view: View) -> Iterator[str]:
    """Names are checked on the web ports, and what may be asked is what may be reached."""
    for name, unchecked in view.unchecked.items():
        if unchecked & WEB:
            yield f"web ports of {name.text} are open by address, without a check of the server name or Host"
    gateway = any(rule.kind == "FQDNNetworkPolicy" for rule in view.egress.rules)
    if any(name.everything for name in view.queries) and not view.world and not gateway:
        yield "it can ask for every name, and the internet is not open to it"
    yield from _unlearnable(view)


def _node_resolver(document: Document, view: View) -> Iterator[str]:
    """The resolver on the node is for names alone, and only for who may ask the cluster's resolvers too."""
    egress = view.egress
    permitted = egress.permitted(address(RESOLVER_ADDRESS))
    if permitted - DNS:
        yield "it can connect to the node's resolver beside port 53"
    cluster_dns = pod(RESOLVER_NAMESPACE, {"k8s-app": RESOLVER_APPS[0]}, cluster=document.cluster)
    if permitted & DNS and not egress.permitted(cluster_dns) & DNS:
        yield "it can ask the node's resolver and no other"


def _ssh(identity: Identity) -> Traffic:
    """The human-eval port, which whoever is outside the cluster may use."""
    outside = identity.address is not None
    return SSH if outside else Traffic(())


def _strangers(document: Document, service: Service, names: tuple[str, ...]) -> Iterator[tuple[str, Identity]]:
    """Everybody that no sandbox may talk to; an allowed name may resolve to any address outside."""
    own = {key: value for source, key, value in service.identity.labels.labels if source == "k8s"}
    labels = {key: value for key, value in own.items() if not key.startswith("io.")}
    other = {**labels, SANDBOX_LABEL: "another-sandbox"}
    yield "a pod of another sandbox", pod(document.namespace, other, cluster=document.cluster)
    yield "the same pod in another namespace", pod("another-namespace", labels, cluster=document.cluster)
    yield "a pod without labels", pod(document.namespace, {}, cluster=document.cluster)
    yield "a system pod", pod("kube-system", {"k8s-app": "metrics-server"}, cluster=document.cluster)
    for name in ("host", "remote-node", "kube-apiserver", "health", "unmanaged", "ingress"):
        yield f"the entity {name}", entity(name)
    for text in METADATA:
        yield f"{text} (metadata)", address(text, names)
    if any(rule.kind == "Cilium" for rule in document.rules):  # a backend with entities can close it by name
        yield "an API server outside the cluster", address("198.51.100.99", names, reserved=("kube-apiserver",))


def _unlearnable(view: View) -> Iterator[str]:
    """Names that can be asked but not reached are a channel; names that cannot be asked are never reached."""
    allows = [rule for rule in view.egress.rules if not rule.deny and not rule.inert]
    asked = {name for rule in allows for name in rule.layer7.dns or ()}
    reached = {
        peer.pattern
        for rule in allows
        if rule.kind == "Cilium"
        for peer in rule.peers
        if isinstance(peer, Named)
    }  # fmt: skip
    if not any(name.everything for name in asked):
        for name in sorted(asked - reached):
            if not (name.exact and name.text.endswith(".cluster.local")):
                yield f"it can ask for {name.text} and not connect to it"
    for name in sorted(reached):
        if not covered(name, asked):
            yield f"it can never learn the addresses of {name.text}"


def _baseline_dependence(document: Mapping[str, Any]) -> Iterator[Violation]:
    """Objects that do not select by the sandbox only take away: without them the matrix is the same."""
    objects = document["objects"]
    rest = [item for item in objects if item["kind"] not in POLICY_KINDS or _selects_sandbox(item)]
    if len(rest) == len(objects) or not document["pods"]:
        return
    with_all, without = evaluate(document)["services"], evaluate({**document, "objects": rest})["services"]
    for name, verdict in with_all.items():
        if verdict != without[name]:
            yield Violation(name, "its verdict depends on the clusterwide baseline")


def _selects_sandbox(item: Mapping[str, Any]) -> bool:
    if item["kind"] == CLUSTERWIDE:
        return False
    spec = item.get("spec") or {}
    selector = spec.get("endpointSelector") or spec.get("podSelector") or {}
    return SANDBOX_LABEL in (selector.get("matchLabels") or {})
