"""Each invariant is seen to fail: a sound document is broken in one place and the finding names it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from network.evaluate.invariants import violations

Json = dict[str, Any]
SANDBOX = "gauntlet.dev/sandbox-id"
OWN: Json = {"matchLabels": {SANDBOX: "s1"}}


def _sound() -> Json:
    metadata = {"name": "base", "namespace": "sb"}
    resolver = {"matchLabels": {"k8s:io.kubernetes.pod.namespace": "kube-system", "k8s-app": "kube-dns"}}
    names = [{"matchName": "a.s1.sb.svc.cluster.local"}, {"matchName": "a.example"}]
    ports = [{"port": "53", "protocol": "UDP"}]
    sandbox = {
        "apiVersion": "cilium.io/v2",
        "kind": "CiliumNetworkPolicy",
        "metadata": metadata,
        "spec": {
            "endpointSelector": OWN,
            "ingress": [{"fromEntities": ["none"]}],
            "egress": [
                {"toEntities": ["none"]},
                {"toEndpoints": [resolver], "toPorts": [{"ports": ports, "rules": {"dns": names}}]},
                {
                    "toFQDNs": [{"matchName": "a.example"}],
                    "toPorts": [
                        {"ports": [{"port": "443", "protocol": "TCP"}], "serverNames": ["a.example"]},
                        {
                            "ports": [{"port": "80", "protocol": "TCP"}],
                            "rules": {"http": [{"host": "a\\.example"}]},
                        },
                    ],
                },
            ],
        },
    }
    baseline = {
        "apiVersion": "cilium.io/v2",
        "kind": "CiliumClusterwideNetworkPolicy",
        "metadata": {"name": "baseline"},
        "spec": {
            "endpointSelector": {"matchExpressions": [{"key": SANDBOX, "operator": "Exists"}]},
            "ingress": [{"fromEntities": ["none"]}],
            "egress": [{"toEntities": ["none"]}],
            "egressDeny": [
                {"toEntities": ["kube-apiserver"]},
                {
                    "toCIDR": [
                        "169.254.0.0/16",
                        "168.63.129.16/32",
                        "100.100.100.200/32",
                        "fd00:ec2::/64",
                        "fd20:ce::254/128",
                        "fe80::/10",
                        "64:ff9b::a9fe:0/112",
                        "2002:a9fe::/32",
                    ]
                },
            ],
        },
    }
    pods = {name: {"labels": {SANDBOX: "s1", "svc": name}, "hosts": [name]} for name in ("a", "b")}
    return {"objects": [baseline, sandbox], "pods": pods}


def test_a_sound_document_has_none() -> None:
    assert violations(_sound()) == []


def _rules(document: Json, direction: str, index: int = 1) -> list[Json]:
    found: list[Json] = document["objects"][index]["spec"].setdefault(direction, [])
    return found


def _widen(document: Json) -> None:
    _rules(document, "egress").append({"toEntities": ["world"]})


def _widen_without_baseline(document: Json) -> None:
    _widen(document)
    del document["objects"][0]


def _open_baseline(document: Json) -> None:
    _rules(document, "egress", 0).append({"toCIDR": ["203.0.113.0/24"]})


def _egress_only_in_baseline(document: Json) -> None:
    del document["objects"][1]["spec"]["egress"]


BREAKS: list[tuple[Callable[[Json], Any], str]] = [
    (lambda d: _rules(d, "ingress").append({}), "is an empty rule"),
    (lambda d: _rules(d, "ingress").append({"fromEntities": []}), "has no peers"),
    (lambda d: _rules(d, "ingress").append({"toPorts": [{"ports": [{"port": "80"}]}]}), "has no peers"),
    (lambda d: _rules(d, "egress")[1]["toPorts"][0].update(ports=[]), "toPorts[0].ports is empty"),
    (lambda d: _rules(d, "egress").append({"toEndpoints": [{}]}), "selects every pod of the namespace"),
    (lambda d: d["objects"][1]["spec"].update(egressDeny=[]), "egressDeny is empty"),
    (
        lambda d: _rules(d, "egress").append({"toEndpoints": [{"matchLabels": {"svc": "a"}}]}),
        "a pod of another sandbox",
    ),
    (
        lambda d: _rules(d, "ingress").append({"fromEndpoints": [{"matchLabels": {"svc": "a"}}]}),
        "a pod of another sandbox can",
    ),
    (
        lambda d: _rules(d, "egress").append(
            {"toEndpoints": [{"matchLabels": {SANDBOX: "s1", "k8s:io.kubernetes.pod.namespace": "another-namespace"}}]}
        ),
        "the same pod in another namespace",
    ),
    (lambda d: _rules(d, "egress").append({"toEntities": ["host"]}), "connect to the entity host"),
    (lambda d: _rules(d, "ingress").append({"fromEntities": ["cluster"]}), "the entity remote-node can connect to it"),
    (lambda d: _rules(d, "ingress").append({"fromEntities": ["world"]}), "(metadata) can connect to it"),
    (lambda d: _rules(d, "egress").append({"toEntities": ["kube-apiserver"]}) or d["objects"].pop(0), "kube-apiserver"),
    (_widen_without_baseline, "169.254.169.254 (metadata)"),
    (_widen_without_baseline, "an API server outside the cluster"),
    (lambda d: d["objects"][1]["spec"].pop("ingress") and d["objects"].pop(0), "ingress is not denied by default"),
    (_egress_only_in_baseline, "depends on the clusterwide baseline"),
    (_open_baseline, "depends on the clusterwide baseline"),
    (lambda d: _rules(d, "egress").pop(), "ask for a.example and not connect"),
    (lambda d: _rules(d, "egress").pop(1), "never learn the addresses of a.example"),
    (
        lambda d: _rules(d, "egress")[1]["toPorts"][0]["rules"]["dns"].append(
            {"matchPattern": "*.sb.svc.cluster.local"}
        ),
        "ask for *.sb.svc.cluster.local",
    ),
]


@pytest.mark.parametrize(("spoil", "words"), BREAKS)
def test_each_break_is_found(spoil: Callable[[Json], Any], words: str) -> None:
    document = copy.deepcopy(_sound())
    spoil(document)
    found = violations(document)
    assert any(words in text for text in found), found


def test_the_ssh_port_from_outside_is_no_violation_but_another_is() -> None:
    document = _sound()
    rule = {"fromEntities": ["world"], "toPorts": [{"ports": [{"port": "2222", "protocol": "TCP"}]}]}
    _rules(document, "ingress").append(rule)
    assert violations(document) == []
    rule["toPorts"][0]["ports"][0]["port"] = "2223"  # type: ignore[index]
    assert violations(document) != []
