"""Single verdicts on the pitfalls of both policy kinds, one named case each."""

from __future__ import annotations

from typing import Any

import pytest

from network.evaluate.errors import EvaluateError
from network.evaluate.flows import Decision, Flow, decide, read_objects
from network.evaluate.identities import Identity, address, entity, pod

A = pod("sb", {"id": "1", "svc": "a"})
B = pod("sb", {"id": "1", "svc": "b"})
STRANGER = pod("sb", {"id": "2", "svc": "a"})
FAR = pod("other", {"id": "1", "svc": "a"})
OUT4, OUT6 = address("203.0.113.7"), address("2001:db8::7")
HOST, NODE, API = entity("host"), entity("remote-node"), entity("kube-apiserver")
CLOUD_API = address("198.51.100.9", reserved=("kube-apiserver",))
Json = dict[str, Any]


def cnp(selector: Json | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": "cilium.io/v2",
        "kind": "CiliumNetworkPolicy",
        "metadata": {"name": "p", "namespace": "sb"},
        "spec": {"endpointSelector": selector or {"matchLabels": {"svc": "a"}}, **spec},
    }


def ccnp(selector: Json, **spec: Any) -> Json:
    return {
        "apiVersion": "cilium.io/v2",
        "kind": "CiliumClusterwideNetworkPolicy",
        "metadata": {"name": "p"},
        "spec": {"endpointSelector": selector, **spec},
    }


def netpol(types: list[str], **spec: Any) -> Json:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "p", "namespace": "sb"},
        "spec": {"podSelector": {"matchLabels": {"svc": "a"}}, "policyTypes": types, **spec},
    }


def out(objects: list[Json], to: Identity, protocol: str = "TCP", port: int = 443) -> bool:
    return decide(objects, Flow(A, to, protocol, port)).egress


def into(objects: list[Json], source: Identity, protocol: str = "TCP", port: int = 443) -> bool:
    return decide(objects, Flow(source, A, protocol, port)).ingress


def test_without_any_object_everything_passes() -> None:
    assert decide([], Flow(A, OUT4, "TCP", 443)) == Decision(egress=True, ingress=True)


def test_default_deny_is_per_direction() -> None:
    policy = cnp(egress=[{"toEntities": ["none"]}])
    assert not out([policy], B)
    assert into([policy], B)


def test_deny_beats_allow_across_objects_and_kinds() -> None:
    allow = netpol(["Egress"], egress=[{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}])
    deny = ccnp({"matchLabels": {"svc": "a"}}, egressDeny=[{"toCIDRSet": [{"cidr": "203.0.113.0/24"}]}])
    assert out([allow], OUT4)
    assert not out([allow, deny], OUT4)
    assert out([allow, deny], address("198.51.100.1"))


def test_a_narrow_deny_beats_a_wide_allow_and_a_wide_deny_beats_a_narrow_allow() -> None:
    wide, narrow = {"toEntities": ["world"]}, {"toCIDR": ["203.0.113.7/32"], "toPorts": [{"ports": [{"port": "443"}]}]}
    assert not out([cnp(egress=[wide], egressDeny=[narrow])], OUT4)
    assert out([cnp(egress=[wide], egressDeny=[narrow])], OUT4, port=80)
    assert not out([cnp(egress=[narrow], egressDeny=[wide])], OUT4)


def test_a_lone_deny_rule_isolates_unless_default_deny_is_switched_off() -> None:
    deny = [{"toEntities": ["kube-apiserver"]}]
    assert not out([cnp(egressDeny=deny)], OUT4)
    subtractive = cnp(egressDeny=deny, enableDefaultDeny={"egress": False})
    assert out([subtractive], OUT4)
    assert not out([subtractive], API)


def test_default_deny_flag_does_nothing_for_a_direction_without_rules() -> None:
    policy = cnp(egress=[{"toEntities": ["none"]}], enableDefaultDeny={"ingress": True, "egress": True})
    assert into([policy], OUT4)


@pytest.mark.parametrize("rule", [{}, {"fromEntities": []}, {"fromEndpoints": []}, {"fromCIDRSet": []}])
def test_empty_cilium_rules_isolate_and_allow_nobody(rule: Json) -> None:
    assert not into([cnp(ingress=[rule])], B)


def test_empty_kubernetes_rule_and_empty_peer_list_allow_everybody() -> None:
    assert into([netpol(["Ingress"], ingress=[{}])], OUT4)
    assert into([netpol(["Ingress"], ingress=[{"from": []}])], STRANGER)
    assert not into([netpol(["Ingress"], ingress=[])], B)


def test_cilium_ports_without_peers_are_open_to_everybody() -> None:
    policy = cnp(ingress=[{"toPorts": [{"ports": [{"port": "80", "protocol": "TCP"}]}]}])
    assert into([policy], STRANGER, port=80)
    assert not into([policy], STRANGER, port=81)


def test_empty_fqdn_list_counts_as_no_peer_list_at_all() -> None:
    policy = cnp(egress=[{"toFQDNs": [], "toPorts": [{"ports": [{"port": "80", "protocol": "TCP"}]}]}])
    assert out([policy], STRANGER, port=80)


def test_port_entry_without_ports_allows_nothing() -> None:
    assert not out([cnp(egress=[{"toEntities": ["world"], "toPorts": [{"ports": []}]}])], OUT4)


def test_cidr_rules_match_neither_pods_nor_nodes() -> None:
    policy = cnp(egress=[{"toCIDR": ["0.0.0.0/0", "::/0"]}])
    assert out([policy], OUT4) and out([policy], OUT6)
    assert not any(out([policy], end) for end in (B, FAR, HOST, NODE, API))


def test_world_is_outside_only_but_a_cloud_api_server_is_world_too() -> None:
    policy = cnp(egress=[{"toEntities": ["world"]}])
    assert out([policy], OUT4) and out([policy], OUT6)
    assert not any(out([policy], end) for end in (B, HOST, NODE, API))
    assert out([policy], CLOUD_API)
    closed = ccnp({"matchLabels": {"svc": "a"}}, egressDeny=[{"toEntities": ["kube-apiserver"]}])
    assert not out([policy, closed], CLOUD_API)


def test_one_family_of_everything_leaves_the_other_closed() -> None:
    policy = cnp(egress=[{"toCIDR": ["0.0.0.0/0"]}])
    assert out([policy], OUT4) and not out([policy], OUT6)


def test_except_is_a_hole_and_not_a_deny() -> None:
    hole = {"toCIDRSet": [{"cidr": "0.0.0.0/0", "except": ["203.0.113.0/24"]}]}
    assert not out([cnp(egress=[hole])], OUT4)
    assert out([cnp(egress=[hole]), cnp(egress=[{"toCIDR": ["203.0.113.7/32"]}])], OUT4)


def test_peer_selectors_stay_in_the_namespace_of_their_object() -> None:
    everyone = cnp(egress=[{"toEndpoints": [{}]}])
    assert out([everyone], STRANGER) and not out([everyone], FAR)
    named = cnp(egress=[{"toEndpoints": [{"matchLabels": {"k8s:io.kubernetes.pod.namespace": "other"}}]}])
    assert out([named], FAR) and not out([named], B)


def test_clusterwide_peer_selectors_reach_every_namespace_but_no_entity() -> None:
    policy = ccnp({"matchLabels": {"svc": "a"}}, egress=[{"toEndpoints": [{}]}])
    assert out([policy], FAR) and not out([policy], OUT4) and not out([policy], HOST)


def test_namespaced_object_never_selects_pods_of_another_namespace() -> None:
    policy = cnp(
        {"matchLabels": {"k8s:io.kubernetes.pod.namespace": "other", "svc": "a"}}, egress=[{"toEntities": ["none"]}]
    )
    assert decide([policy], Flow(FAR, OUT4, "TCP", 443)).egress
    assert not out([policy], OUT4)


def test_negative_selectors_match_pods_that_lack_the_label() -> None:
    selector = {"matchExpressions": [{"key": "isolated", "operator": "NotIn", "values": ["yes"]}]}
    assert not out([cnp(selector, egress=[{"toEntities": ["none"]}])], B)
    absent = {"matchExpressions": [{"key": "isolated", "operator": "DoesNotExist"}]}
    assert not out([cnp(absent, egress=[{"toEntities": ["none"]}])], B)


def test_ports_exclude_icmp_and_icmp_needs_its_own_rule() -> None:
    ports = cnp(ingress=[{"fromEndpoints": [{}], "toPorts": [{"ports": [{"port": "0", "protocol": "ANY"}]}]}])
    assert into([ports], B, "SCTP", 7) and not into([ports], B, "ICMP", 8)
    echo = cnp(ingress=[{"fromEndpoints": [{}], "icmps": [{"fields": [{"family": "IPv6", "type": "EchoRequest"}]}]}])
    assert into([echo], B, "ICMPv6", 128)
    assert not into([echo], B, "ICMP", 8) and not into([echo], B, "TCP", 128)


def test_a_rule_without_ports_covers_icmp() -> None:
    assert out([cnp(egress=[{"toEntities": ["world"]}])], OUT4, "ICMP", 8)
    assert into([netpol(["Ingress"], ingress=[{"from": [{"podSelector": {}}]}])], B, "ICMP", 8)


def test_kubernetes_port_without_protocol_is_tcp_and_cilium_s_is_any() -> None:
    assert not into([netpol(["Ingress"], ingress=[{"ports": [{"port": 53}]}])], B, "UDP", 53)
    assert into([cnp(ingress=[{"fromEndpoints": [{}], "toPorts": [{"ports": [{"port": "53"}]}]}])], B, "UDP", 53)


def test_the_node_reaches_its_pods_for_probes_unless_denied() -> None:
    closed = cnp(ingress=[{"fromEntities": ["none"]}])
    assert into([closed], HOST) and not into([closed], NODE)
    assert not into([closed, cnp(ingressDeny=[{"fromEntities": ["all"]}])], HOST)


def test_names_match_only_addresses_they_resolved_to() -> None:
    policy = cnp(egress=[{"toFQDNs": [{"matchPattern": "*.b.example"}]}])
    assert out([policy], address("198.51.100.1", names=("www.b.example",)))
    assert not out([policy], address("198.51.100.1"))
    assert not out([policy], address("198.51.100.1", names=("b.example",)))


def test_an_fqdn_network_policy_allows_but_is_not_trusted_to_isolate() -> None:
    policy = {
        "apiVersion": "networking.gke.io/v1alpha1",
        "kind": "FQDNNetworkPolicy",
        "metadata": {"name": "p", "namespace": "sb"},
        "spec": {
            "podSelector": {"matchLabels": {"svc": "a"}},
            "egress": [{"matches": [{"name": "a.example"}], "ports": [{"protocol": "TCP", "port": 443}]}],
        },
    }
    assert out([policy], OUT4)
    closed = [policy, netpol(["Egress"])]
    assert not out(closed, OUT4)
    assert out(closed, address("198.51.100.1", names=("a.example",)))
    assert not out(closed, address("198.51.100.1", names=("a.example",)), port=80)


def test_a_flow_must_pass_both_ends() -> None:
    let_out = cnp(egress=[{"toEndpoints": [{"matchLabels": {"svc": "b"}}]}])
    shut = cnp({"matchLabels": {"svc": "b"}}, ingress=[{"fromEntities": ["none"]}])
    verdict = decide([let_out, shut], Flow(A, B, "TCP", 80))
    assert verdict.egress and not verdict.ingress and not verdict.allowed


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (cnp(egress=[{"toEntities": ["World"]}]), "unknown entity"),
        (cnp(egress=[{"toEntitys": ["world"]}]), "does not know toEntitys"),
        (cnp(egress=[{"toEntities": ["world"], "toCIDR": ["10.0.0.0/8"]}]), "cannot be combined"),
        (cnp(egress=[{"toCIDR": ["10.0.0.0/33"]}]), "not a CIDR"),
        (cnp(egress=[{"toCIDRSet": [{"cidr": "10.0.0.0/8", "except": ["11.0.0.0/8"]}]}]), "not inside"),
        (cnp(egress=[{"toServices": [{}]}]), "does not know toServices"),
        (cnp(egress=[{"toPorts": [{"ports": [{"port": "http"}]}]}]), "named ports"),
        (cnp(egress=[{"toPorts": [{"ports": [{"port": "010"}]}]}]), "plain port numbers"),
        (cnp(egress=[{"toPorts": [{"ports": [{"port": 80}]}]}]), "expected a string"),
        (cnp(ingress=[]), "no rule in any direction"),
        (cnp({"matchExpressions": [{"key": "a", "operator": "in", "values": ["b"]}]}, egress=[{}]), "unknown operator"),
        (netpol(["Ingress"], egress=[{}]), "leaves that direction out"),
        (netpol(["Egress"], egress=[{"to": [{}]}]), "empty peer"),
        ({"kind": "IngressRoute", "metadata": {"name": "p"}}, "does not know the kind"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(policy: Json, words: str) -> None:
    with pytest.raises(EvaluateError, match=words) as caught:
        read_objects([policy])
    assert "p" in caught.value.where or "objects[0]" in caught.value.where
