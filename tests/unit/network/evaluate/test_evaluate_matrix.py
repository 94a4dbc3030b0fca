"""The matrix read off hand-written objects, one named case for each way in which objects can mislead."""

from __future__ import annotations

from typing import Any

import pytest

from network.evaluate import EvaluateError, evaluate

Json = dict[str, Any]
SANDBOX = "gauntlet.dev/sandbox-id"
INERT: Json = {"ingress": [{"fromEntities": ["none"]}], "egress": [{"toEntities": ["none"]}]}
SIBLINGS: Json = {"matchLabels": {SANDBOX: "s1"}}


def cnp(name: str, selector: Json, **spec: Any) -> Json:
    return {
        "apiVersion": "cilium.io/v2",
        "kind": "CiliumNetworkPolicy",
        "metadata": {"name": name, "namespace": "sb"},
        "spec": {"endpointSelector": selector, **spec},
    }


def netpol(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": "sb"},
        "spec": {"podSelector": SIBLINGS, **spec},
    }


def of(service: str) -> Json:
    return {"matchLabels": {SANDBOX: "s1", "svc": service}}


def matrix(*objects: Json, pods: Json | None = None) -> Json:
    names = pods or {"a": {}, "b": {}}
    document = {
        "objects": list(objects),
        "pods": {
            name: {
                "labels": {SANDBOX: "s1", "svc": name, **extra.get("labels", {})},
                "hosts": extra.get("hosts", [name]),
            }
            for name, extra in names.items()
        },
    }
    services: Json = evaluate(document)["services"]
    return services


def egress(*rules: Json) -> Json:
    return cnp("egress", SIBLINGS, egress=list(rules))


def dns(*names: Json) -> Json:
    resolver = {"matchLabels": {"k8s:io.kubernetes.pod.namespace": "kube-system", "k8s-app": "kube-dns"}}
    ports: Json = {"ports": [{"port": "53", "protocol": "ANY"}]}
    return {"toEndpoints": [resolver], "toPorts": [ports | ({"rules": {"dns": list(names)}} if names else {})]}


BASE = cnp("base", SIBLINGS, **INERT)


def test_closed_pods_have_nothing() -> None:
    assert matrix(BASE)["a"] == {
        "internet": "none",
        "domains": [],
        "cidrs": [],
        "dns": "siblings",
        "reachable_from": [],
        "ports": None,
        "outside_ingress": [],
        "runtime_class": None,
    }


def test_pods_that_no_object_selects_are_open_to_everything() -> None:
    found = matrix(cnp("other", of("nobody"), **INERT))["a"]
    assert (found["internet"], found["dns"], found["reachable_from"], found["outside_ingress"]) == (
        "all",
        "all",
        ["b"],
        [0],
    )


def test_world_is_all_and_one_family_of_blocks_is_a_list() -> None:
    assert matrix(BASE, egress({"toEntities": ["world"]}))["a"]["internet"] == "all"
    v4 = matrix(BASE, egress({"toCIDR": ["0.0.0.0/0"]}))["a"]
    assert (v4["internet"], v4["cidrs"]) == ("listed", ["0.0.0.0/0"])


def test_both_families_of_blocks_are_all_only_where_names_resolve_freely() -> None:
    # The hole keeps the node's own resolver out, which answers any name.
    blocks = {"toCIDRSet": [{"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}, {"cidr": "::/0"}]}
    assert matrix(BASE, egress(blocks))["a"]["cidrs"] == ["0.0.0.0/0", "::/0"]
    free = matrix(BASE, egress(blocks, dns()))["a"]
    assert (free["internet"], free["dns"], free["cidrs"]) == ("all", "all", [])


def test_a_deny_that_covers_a_grant_removes_it() -> None:
    grant = egress({"toCIDR": ["10.20.0.0/24", "203.0.113.0/24"]})
    deny = cnp("deny", SIBLINGS, egressDeny=[{"toCIDR": ["10.0.0.0/8"]}])
    assert matrix(BASE, grant, deny)["a"]["cidrs"] == ["203.0.113.0/24"]


def test_a_deny_inside_a_grant_leaves_the_grant() -> None:
    grant = egress({"toCIDRSet": [{"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}]})
    deny = cnp("deny", SIBLINGS, egressDeny=[{"toCIDR": ["10.2.0.0/16"]}])
    assert matrix(BASE, grant, deny)["a"]["cidrs"] == ["10.0.0.0/8"]


def test_a_domain_counts_only_when_its_name_can_be_asked() -> None:
    named: Json = {
        "toFQDNs": [{"matchName": "a.example"}, {"matchPattern": "*.b.example"}],
        "toPorts": [
            {"ports": [{"port": "443", "protocol": "TCP"}], "serverNames": ["a.example", "*.b.example"]},
        ],
    }
    asked = matrix(BASE, egress(named, dns({"matchName": "A.example."}, {"matchPattern": "*.b.example"})))["a"]
    assert (asked["domains"], asked["dns"]) == (["*.b.example", "a.example"], "listed")
    assert matrix(BASE, egress(named))["a"]["domains"] == []


def test_an_unfiltered_way_to_the_resolver_opens_all_names() -> None:
    filtered, unfiltered = dns({"matchName": "b.sb.svc.cluster.local"}), dns()
    assert matrix(BASE, egress(filtered))["a"]["dns"] == "siblings"
    assert matrix(BASE, egress(filtered, unfiltered))["a"]["dns"] == "all"


def test_reaching_a_sibling_takes_both_sides() -> None:
    out = egress({"toEndpoints": [SIBLINGS]})
    into = cnp("in", of("a"), ingress=[{"fromEndpoints": [SIBLINGS]}])
    assert matrix(BASE, out)["a"]["reachable_from"] == []
    assert matrix(BASE, into)["a"]["reachable_from"] == []
    both = matrix(BASE, out, into)
    assert (both["a"]["reachable_from"], both["b"]["reachable_from"]) == (["b"], [])


def test_ports_are_what_both_sides_leave_and_any_is_three_protocols() -> None:
    out = egress({"toEndpoints": [SIBLINGS]})
    ports = [{"port": "80", "protocol": "TCP"}, {"port": "53"}]
    limited = cnp("in", of("a"), ingress=[{"fromEndpoints": [SIBLINGS], "toPorts": [{"ports": ports}]}])
    expected = [{"port": 53, "protocol": "ANY"}, {"port": 80, "protocol": "TCP"}]
    assert matrix(BASE, out, limited)["a"]["ports"] == expected


def test_a_lone_service_shows_the_ports_it_would_open_to_its_kind() -> None:
    limited = cnp(
        "in",
        of("a"),
        ingress=[{"fromEndpoints": [SIBLINGS], "toPorts": [{"ports": [{"port": "80", "protocol": "TCP"}]}]}],
    )
    assert matrix(BASE, limited, pods={"a": {}})["a"]["ports"] == [{"port": 80, "protocol": "TCP"}]


def test_ssh_from_outside_shows_as_a_port_and_opens_it_to_no_sibling() -> None:
    rule = {"fromEntities": ["world"], "toPorts": [{"ports": [{"port": "2222", "protocol": "TCP"}]}]}
    found = matrix(BASE, egress({"toEndpoints": [SIBLINGS]}), cnp("ssh", of("a"), ingress=[rule]))
    assert (found["a"]["outside_ingress"], found["a"]["reachable_from"]) == ([2222], [])
    assert found["b"]["outside_ingress"] == []


def test_network_policy_isolates_by_type_alone_and_its_empty_rule_opens_everything() -> None:
    assert matrix(netpol("base", policyTypes=["Ingress", "Egress"]))["a"]["internet"] == "none"
    assert matrix(netpol("base", policyTypes=["Ingress", "Egress"], egress=[{}]))["a"]["internet"] == "all"


def test_names_inside_the_pod_are_siblings_where_no_resolver_is_reached() -> None:
    pods = {"a": {"hosts": ["a", "b"]}, "b": {"hosts": []}}
    found = matrix(netpol("base", policyTypes=["Ingress", "Egress"]), pods=pods)
    assert (found["a"]["dns"], found["b"]["dns"]) == ("siblings", "none")


def test_named_domains_beside_blocks_of_both_families_stay_a_list() -> None:
    """Seen in a random run: all of both families listed as CIDRs was taken for the open internet."""
    blocks = [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]}}, {"ipBlock": {"cidr": "::/0"}}]
    resolver: Json = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
        "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
    }
    domains = {
        "apiVersion": "networking.gke.io/v1alpha1",
        "kind": "FQDNNetworkPolicy",
        "metadata": {"name": "domains", "namespace": "sb"},
        "spec": {
            "podSelector": SIBLINGS,
            "egress": [{"matches": [{"name": "a.example"}], "ports": [{"protocol": "TCP", "port": 443}]}],
        },
    }
    rules = [{"to": [resolver], "ports": [{"protocol": "UDP", "port": 53}]}, {"to": blocks}]
    found = matrix(netpol("base", policyTypes=["Ingress", "Egress"], egress=rules), domains)["a"]
    assert (found["internet"], found["dns"], found["domains"]) == ("listed", "listed", ["a.example"])
    assert found["cidrs"] == ["0.0.0.0/0", "::/0"]


def test_the_node_s_resolver_is_dns_and_no_cidr_grant() -> None:
    ports = [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]
    rule = {"to": [{"ipBlock": {"cidr": "169.254.20.10/32"}}], "ports": ports}
    found = matrix(netpol("base", policyTypes=["Ingress", "Egress"], egress=[rule]))["a"]
    assert (found["dns"], found["internet"], found["cidrs"]) == ("all", "none", [])


def test_an_object_for_other_labels_grants_nothing_here() -> None:
    other: Json = {"matchLabels": {SANDBOX: "s2"}}
    assert matrix(BASE, cnp("else", other, egress=[{"toEntities": ["world"]}]))["a"]["internet"] == "none"


def test_a_pinned_cluster_name_is_the_pods_own() -> None:
    peer: Json = {"matchLabels": {SANDBOX: "s1", "k8s:io.cilium.k8s.policy.cluster": "prod"}}
    found = matrix(BASE, egress({"toEndpoints": [peer]}), cnp("in", of("a"), ingress=[{"fromEndpoints": [peer]}]))
    assert found["a"]["reachable_from"] == ["b"]


def test_a_container_without_network_has_nothing_but_its_published_names() -> None:
    container = {
        "apiVersion": "gauntlet.dev/v1",
        "kind": "DockerSandbox",
        "metadata": {"name": "s1-a"},
        "spec": {"service": "a", "networkMode": "none", "runtime": "gauntlet-runsc", "publish": []},
    }
    found = matrix(container, pods={"a": {}})["a"]
    assert (found["internet"], found["dns"], found["reachable_from"]) == ("none", "siblings", [])


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"pods": {}}, "has no objects"),
        ({"objects": []}, "has no pods"),
        (
            {
                "objects": [
                    cnp("a", {}, **INERT),
                    {**cnp("b", {}, **INERT), "metadata": {"name": "b", "namespace": "x"}},
                ],
                "pods": {},
            },
            "more than one namespace: sb, x",
        ),
        (
            {
                "objects": [
                    {
                        "kind": "DockerSandbox",
                        "metadata": {"name": "a"},
                        "spec": {"service": "a", "networkMode": "bridge"},
                    }
                ],
                "pods": {"a": {"labels": {}}},
            },
            "without network",
        ),
    ],
)
def test_documents_that_cannot_be_judged_are_refused(document: Json, words: str) -> None:
    with pytest.raises(EvaluateError, match=words):
        evaluate(document)
