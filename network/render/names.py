"""Names and labels of what is rendered: the only vocabulary that pods and policies share.

A pod belongs to a sandbox by the label `SANDBOX` and by nothing else. The platform writes these
labels last; a file that tries to set one is refused (R23).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

PREFIX = "gauntlet.dev/"
ROLE = PREFIX + "role"
ROLE_SANDBOX = "sandbox"
SANDBOX = PREFIX + "sandbox-id"
SERVICE = PREFIX + "service"
ISOLATED = PREFIX + "isolated"
NETWORK = PREFIX + "net."
NAMESPACE_LABEL = "k8s:io.kubernetes.pod.namespace"
CLUSTER_LABEL = "k8s:io.cilium.k8s.policy.cluster"
DNS_NAMESPACE = "kube-system"
DNS_APPS = ("kube-dns", "node-local-dns")

DEFAULT_SANDBOX_ID = "sandbox"
DEFAULT_NAMESPACE = "gauntlet-sandboxes"
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NOT_SLUG = re.compile(r"[^a-z0-9-]+")
_MAX_SLUG = 50
_DIGEST = 10
_DIGESTED = re.compile(rf"-[0-9a-f]{{{_DIGEST}}}$")


class RenderError(ValueError):
    """An argument of rendering is unusable; the message names it and the accepted form."""


def check_ids(sandbox_id: str, namespace: str) -> None:
    """RenderError unless both can be label values and the namespace a host name."""
    if not _LABEL_VALUE.fullmatch(sandbox_id):
        raise RenderError(
            f"sandbox id {sandbox_id[:80]!a}: use at most 63 letters, digits, `-`, `_` and `.`,"
            " starting and ending with a letter or digit"
        )
    if not _DNS_LABEL.fullmatch(namespace):
        raise RenderError(f"namespace {namespace[:80]!a}: use at most 63 lower-case letters, digits and hyphens")


def slug(text: str) -> str:
    """A part of an object's name, a host name's label: no two texts share one.

    Unchanged where possible. What had to be changed ends with a digest of the exact text, and so does what looks as if
    it did: `a-0123456789` could else be the slug of another text.
    """
    clean = _clean(text)
    return text if clean == text and not _DIGESTED.search(text) else _with_digest(clean, text)


def _clean(text: str) -> str:
    return _NOT_SLUG.sub("-", text.lower()).strip("-")[:_MAX_SLUG].strip("-")


def _with_digest(clean: str, text: str) -> str:
    return f"{clean or 'x'}-{hashlib.sha256(text.encode()).hexdigest()[:_DIGEST]}"


def subdomain(sandbox_id: str) -> str:
    """The sandbox's own DNS label: service `db` is `db.<subdomain>.<namespace>.svc.cluster.local`."""
    name = slug(sandbox_id)
    # A Service's name starts with a letter; `s-1` alone could be another sandbox's.
    return name if name[0].isalpha() else f"s-{_with_digest(_clean(sandbox_id), sandbox_id)}"


def host_name(service: str, sandbox_id: str, namespace: str) -> str:
    """The full DNS name of one service of one sandbox."""
    return f"{service}.{subdomain(sandbox_id)}.{namespace}.svc.cluster.local"


def metadata(sandbox_id: str, namespace: str, *parts: str) -> dict[str, Any]:
    """Metadata of one object of a sandbox: `metadata("s1", "ns", "net", "backend")` is named `s1.net.backend`.

    The first part is a word of ours, the others names of the file. A slug holds no dot, so that no two objects of all
    sandboxes share a name.
    """
    return {
        "name": ".".join([slug(sandbox_id), *map(slug, parts)]),
        "namespace": namespace,
        "labels": {"app.kubernetes.io/managed-by": "gauntlet", SANDBOX: sandbox_id},
    }


def pod_labels(sandbox_id: str, service: str, networks: Iterable[str], isolated: bool) -> dict[str, str]:
    """The labels that the platform puts on a service's pod."""
    labels = {ROLE: ROLE_SANDBOX, SANDBOX: sandbox_id, SERVICE: service}
    if isolated:
        labels[ISOLATED] = "true"
    labels.update({NETWORK + name: "true" for name in sorted(networks)})
    return labels


def selector(sandbox_id: str, **more: str) -> dict[str, Any]:
    """Pods of one sandbox with further labels: `service="db"`, `network="backend"`."""
    labels = {SANDBOX: sandbox_id}
    if "service" in more:
        labels[SERVICE] = more["service"]
    if "network" in more:
        labels[NETWORK + more["network"]] = "true"
    return {"matchLabels": labels}


def connected(sandbox_id: str, extra: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Every pod of the sandbox that is on the network at all."""
    return {
        "matchLabels": {SANDBOX: sandbox_id, **(extra or {})},
        "matchExpressions": [{"key": ISOLATED, "operator": "DoesNotExist"}],
    }
