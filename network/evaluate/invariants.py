"""What must hold of every rendered sandbox, checked on the finished objects by meaning, not by form.

Strangers and infrastructure are put at the other end of every pod and judged with the flow engine. Only the
hygiene part looks at form: empty rules and lists mean opposite things in the two policy kinds, so that none
may appear at all. Owns no knowledge of any renderer beyond the label that ties a pod to its sandbox.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from network.evaluate.document import Document, Service, read_document
from network.evaluate.flows import Governed, govern
from network.evaluate.identities import Identity, address, entity, pod
from network.evaluate.matrix import DNS, RESOLVER_ADDRESS, RESOLVER_APPS, RESOLVER_NAMESPACE, evaluate
from network.evaluate.rules import Direction, Named
from network.evaluate.traffic import Traffic, traffic

__all__ = ["violations"]

#: The label by which a pod belongs to a sandbox, written by the platform alone.
SANDBOX_LABEL = "gauntlet.dev/sandbox-id"
SSH_PORT = 2222
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
)  # fmt: skip


def violations(document: Mapping[str, Any]) -> list[str]:
    """Everything that is wrong with a rendered document, one sentence each; empty when nothing is.

    Reads what `render --json` prints. Raises EvaluateError for an object that cannot be judged.
    """
    found = list(_hygiene(document.get("objects"), "objects"))
    read = read_document(document)
    for name, service in read.services.items():
        if service.offline:
            continue
        found += (f"{name}: {text}" for text in _exposures(read, service))
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
        if key in ("ingress", "egress", "ingressDeny", "egressDeny"):
            if not item:
                yield f"{here} is empty"
            for index, rule in enumerate(item or ()):
                if not rule:
                    yield f"{here}[{index}] is an empty rule"
                elif not any(rule.get(peer) for peer in _PEER_LISTS):
                    yield f"{here}[{index}] has no peers"
        elif key in (*_PEER_LISTS, *_PORT_LISTS, "except", "serverNames", "fields") and not item:
            yield f"{here} is empty"
        elif key in ("fromEndpoints", "toEndpoints") and {} in item:
            yield f"{here} selects every pod of the namespace"
        yield from _hygiene(item, here)


def _exposures(document: Document, service: Service) -> Iterator[str]:
    egress = govern(document.rules, service.identity, Direction.EGRESS)
    ingress = govern(document.rules, service.identity, Direction.INGRESS)
    for governed in (egress, ingress):
        if not governed.isolated:
            yield f"{governed.direction} is not denied by default"
    for text, identity in _strangers(document, service):
        if egress.permitted(identity):
            yield f"it can connect to {text}"
        # The node's own processes are let in by the engine itself, for the kubelet's probes.
        if not identity.is_host and ingress.permitted(identity) - _ssh(identity):
            yield f"{text} can connect to it"
    yield from _node_resolver(document, egress)
    yield from _unlearnable(egress)


def _node_resolver(document: Document, egress: Governed) -> Iterator[str]:
    """The resolver on the node is for names alone, and only for who may ask the cluster's resolvers too."""
    permitted = egress.permitted(address(RESOLVER_ADDRESS))
    if permitted - DNS:
        yield "it can connect to the node's resolver beside port 53"
    cluster_dns = pod(RESOLVER_NAMESPACE, {"k8s-app": RESOLVER_APPS[0]}, cluster=document.cluster)
    if permitted & DNS and not egress.permitted(cluster_dns) & DNS:
        yield "it can ask the node's resolver and no other"


def _ssh(identity: Identity) -> Traffic:
    """The human-eval port, which whoever is outside the cluster may use."""
    outside = identity.address is not None
    return traffic("TCP", SSH_PORT, SSH_PORT) if outside else Traffic(())


def _strangers(document: Document, service: Service) -> Iterator[tuple[str, Identity]]:
    """Everybody that no sandbox may talk to."""
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
        yield f"{text} (metadata)", address(text)
    if any(rule.kind == "Cilium" for rule in document.rules):  # a backend with entities can close it by name
        yield "an API server outside the cluster", address("198.51.100.99", reserved=("kube-apiserver",))


def _unlearnable(egress: Governed) -> Iterator[str]:
    """Names that can be asked but not reached are a channel; names that cannot be asked are never reached."""
    allows = [rule for rule in egress.rules if not rule.deny and not rule.inert]
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
        if not any(question.covers(name) for question in asked):
            yield f"it can never learn the addresses of {name.text}"


def _baseline_dependence(document: Mapping[str, Any]) -> Iterator[str]:
    """The clusterwide object only takes away: without it the matrix is the same."""
    objects = document.get("objects") or []
    rest = [item for item in objects if item.get("kind") != CLUSTERWIDE]
    if len(rest) == len(objects) or not document.get("pods"):
        return
    with_all, without = evaluate(document)["services"], evaluate({**document, "objects": rest})["services"]
    for name, verdict in with_all.items():
        if verdict != without[name]:
            yield f"{name}: its verdict depends on the clusterwide baseline"
