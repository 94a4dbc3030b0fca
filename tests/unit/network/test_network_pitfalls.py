"""The rendering pitfalls: what is rendered avoids each, and the lint catches whoever does not."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from network.model import PodSpec
from network.render.backend import InvariantError, Refused, baseline, render
from network.render.lint import lint
from tests.support.network_files import Checked, compose, values

SCOPED = """
allowDomains: [a.example, "*.cdn.example"]
allowDomainsPorts: [{port: 22, domain: a.example}]
allowCIDR: [198.51.100.0/24, "160.0.0.0/4", "2001:db8::/32"]
services:
  default: {image: x}
  web: {image: x, ports: [{port: 80, protocol: TCP}]}
  vault: {image: x, networkIsolated: true}
"""
OPEN = "services: {default: {network_mode: bridge}, vault: {network_mode: none}}"
NETWORKED = """
services: {default: {networks: [a]}, web: {networks: [a, b]}, db: {networks: [b]}, alone: {image: x}}
networks: {a: {internal: true}, b: {internal: true}}
"""
BACKENDS = ("cilium", "gke-dpv2", "kubernetes")


def _objects(outcome: Checked, backend: str = "cilium", **options: Any) -> list[dict[str, Any]]:
    return [dict(item) for item in render(outcome, backend, **options).objects]  # type: ignore[arg-type]


def _spec(objects: list[dict[str, Any]], ending: str) -> dict[str, Any]:
    return next(item["spec"] for item in objects if item["metadata"]["name"].endswith(ending))


def _every_rule(objects: list[dict[str, Any]]) -> list[tuple[dict[str, Any], str, dict[str, Any]]]:
    return [
        (item, direction, rule)
        for item in objects
        for direction in ("ingress", "egress", "egressDeny")
        for rule in item["spec"].get(direction, ())
    ]


def _broken(change: Any, outcome: Checked | None = None, backend: str = "cilium") -> list[str]:
    """The findings after `change` broke the rendered objects."""
    outcome = outcome or values(SCOPED)
    rendered = render(outcome, backend)  # type: ignore[arg-type]
    objects = copy.deepcopy([dict(item) for item in rendered.objects])
    pods = dict(rendered.pods)
    assert outcome.decision is not None
    isolated = outcome.decision.isolated
    assert lint(objects, pods, isolated) == []
    change(objects, pods)
    return lint(objects, pods, isolated)


def test_P01_every_reachable_name_can_be_asked_through_the_dns_proxy() -> None:
    rules = _spec(_objects(values(SCOPED)), ".base")["egress"]
    dns = next(rule for rule in rules if rule.get("toPorts", [{}])[0].get("rules", {}).get("dns"))
    apps = [peer["matchLabels"]["k8s:k8s-app"] for peer in dns["toEndpoints"]]
    assert apps == ["kube-dns", "node-local-dns"]
    assert dns["toPorts"][0]["ports"] == [{"port": "53", "protocol": "UDP"}, {"port": "53", "protocol": "TCP"}]
    asked = dns["toPorts"][0]["rules"]["dns"]
    assert {"matchName": "a.example"} in asked and {"matchPattern": "*.cdn.example"} in asked

    def drop(objects: list[Any], pods: Any) -> None:
        rule = next(r for r in _spec(objects, ".base")["egress"] if "toEndpoints" in r and "toPorts" in r)
        rule["toPorts"][0]["rules"]["dns"].remove({"matchName": "a.example"})

    assert any(line.startswith("P1") for line in _broken(drop))

    def unfiltered(objects: list[Any], pods: Any) -> None:
        rule = next(r for r in _spec(objects, ".base")["egress"] if "toEndpoints" in r and "toPorts" in r)
        del rule["toPorts"][0]["rules"]

    assert any("without a DNS rule" in line for line in _broken(unfiltered))


def test_P02_the_control_plane_stays_closed_under_world() -> None:
    [standing] = baseline("cilium").objects
    assert {"toEntities": ["kube-apiserver"]} in standing["spec"]["egressDeny"]
    outcome = compose(OPEN, cluster="protected: {control_plane: [203.0.113.7/32]}")
    blocks = _spec(_objects(outcome, "kubernetes"), ".egress")["egress"][-1]["to"]
    assert "203.0.113.7/32" in blocks[0]["ipBlock"]["except"]

    def allow(objects: list[Any], pods: Any) -> None:
        del objects[0]["spec"]["egressDeny"][0]

    assert any(line.startswith("P2") for line in _broken(allow))


def test_P03_addresses_never_stand_for_pods_or_nodes() -> None:
    cluster = "protected: {pods: [10.8.0.0/14], nodes: [10.1.0.0/24], services: [10.96.0.0/16]}"
    outcome = values('allowCIDR: ["10.0.0.0/8"]\nservices: {default: {image: x}}', cluster=cluster)
    for backend in BACKENDS:
        text = str(_objects(outcome, backend))
        for protected in ("10.8.0.0/14", "10.1.0.0/24", "10.96.0.0/16"):
            assert protected in text
    blind = _spec(_objects(compose(OPEN), "kubernetes"), ".egress")["egress"][-1]["to"]
    assert {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"} <= set(blind[0]["ipBlock"]["except"])
    assert "fc00::/7" in blind[1]["ipBlock"]["except"]


def test_P04_every_pod_is_denied_in_both_directions_without_the_baseline() -> None:
    for text in (OPEN, NETWORKED):
        base = _spec(_objects(compose(text)), ".base")
        assert base["ingress"] == [{"fromEntities": ["none"]}]
        assert base["egress"][0] == {"toEntities": ["none"]}
    isolate = _spec(_objects(compose(OPEN)), ".isolate.vault")
    assert isolate["ingress"] == [{"fromEntities": ["none"]}] and isolate["egress"] == [{"toEntities": ["none"]}]
    standing = baseline("gke-dpv2").objects[0]["spec"]
    assert standing["ingress"] == [{"fromEntities": ["none"]}] and standing["egress"] == [{"toEntities": ["none"]}]
    plain = _spec(_objects(compose(OPEN), "kubernetes"), ".base")
    assert plain["policyTypes"] == ["Ingress", "Egress"] and "ingress" not in plain and "egress" not in plain

    def lone(objects: list[Any], pods: Any) -> None:
        del _spec(objects, ".isolate.vault")["ingress"]

    assert any(line.startswith("P4") for line in _broken(lone))


def test_P05_everything_is_world_never_a_name() -> None:
    for text in (OPEN, "services: {a: {image: x}}\nx-k8s: {allow_domains: ['*', a.example]}"):
        rules = _spec(_objects(compose(text)), ".base")["egress"]
        assert {"toEntities": ["world"]} in rules
        assert not any("toFQDNs" in rule for rule in rules)

    def star(objects: list[Any], pods: Any) -> None:
        rule = next(r for r in _spec(objects, ".base")["egress"] if "toFQDNs" in r)
        rule["toFQDNs"] = [{"matchPattern": "*"}]

    assert any(line.startswith("P5") for line in _broken(star))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("text", [OPEN, NETWORKED])
def test_P06_nothing_is_ever_empty(backend: str, text: str) -> None:
    def no_empties(value: Any, where: str) -> None:
        if isinstance(value, dict | list):
            assert value, where
            for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
                no_empties(inner, f"{where}.{key}")

    objects = _objects(compose(text, human_eval=True), backend)
    for item in objects:
        no_empties(item, item["metadata"]["name"])
    for _item, _direction, rule in _every_rule(objects):
        peers = set(rule) - {"toPorts", "ports", "icmps"}
        assert len(peers) == 1


@pytest.mark.parametrize(
    "broken",
    [{"egress": [{}]}, {"egress": []}, {"egress": [{"toEntities": []}]}, {"egress": [{"toPorts": [{"ports": []}]}]}],
)
def test_P06_lint_finds_empty_rules_and_peerless_ports(broken: dict[str, Any]) -> None:
    def change(objects: list[Any], pods: Any) -> None:
        _spec(objects, ".base").update(copy.deepcopy(broken))

    assert any(line.startswith("P6") for line in _broken(change))


def test_P06_lint_finds_them_in_network_policies() -> None:
    def allow_all(objects: list[Any], pods: Any) -> None:
        _spec(objects, ".egress")["egress"].append({"ports": [{"protocol": "TCP", "port": 80}]})

    assert any(line.startswith("P6") for line in _broken(allow_all, compose(OPEN), "kubernetes"))


def test_P07_no_ingress_deny_shadows_the_2222_rule() -> None:
    text = "services: {default: {network_mode: none}, b: {image: x}}"
    objects = _objects(compose(text, human_eval=True))
    assert not any("ingressDeny" in item["spec"] for item in objects)
    ssh = _spec(objects, ".ssh")
    assert ssh["endpointSelector"]["matchLabels"]["gauntlet.dev/service"] == "default"
    assert ssh["ingress"] == [
        {"fromEntities": ["world"], "toPorts": [{"ports": [{"port": "2222", "protocol": "TCP"}]}]}
    ]

    def deny(objects: list[Any], pods: Any) -> None:
        _spec(objects, ".isolate.vault")["ingressDeny"] = [{"fromEntities": ["all"]}]

    assert any(line.startswith("P7") for line in _broken(deny))

    def allow(objects: list[Any], pods: Any) -> None:
        _spec(objects, ".isolate.vault")["ingress"] = [{"fromEntities": ["world"]}]

    assert any("isolated vault" in line for line in _broken(allow))


def test_P08_patterns_stay_inside_one_label_and_hosts_are_translated() -> None:
    outcome = values('allowDomains: ["*.b.example", "**.d.example"]\nservices: {default: {image: x}}')
    rules = [rule for rule in _spec(_objects(outcome), ".base")["egress"] if "toFQDNs" in rule]
    hosts = [rule["toPorts"][1]["rules"]["http"][0]["host"] for rule in rules]
    deep, one = (re.compile(host) for host in hosts)
    assert one.fullmatch("a.b.example") and not one.fullmatch("b.example") and not one.fullmatch("x.a.b.example")
    assert deep.fullmatch("x.y.d.example") and not deep.fullmatch("d.example") and not deep.fullmatch("d-example")

    def inside(objects: list[Any], pods: Any) -> None:
        rule = next(r for r in _spec(objects, ".base")["egress"] if "toFQDNs" in r)
        rule["toFQDNs"] = [{"matchPattern": "a.**.example"}]

    assert any(line.startswith("P8") for line in _broken(inside))


def test_P09_host_entities_are_never_granted() -> None:
    for text in (OPEN, NETWORKED):
        for _item, direction, rule in _every_rule(_objects(compose(text, human_eval=True))):
            entities = [*rule.get("toEntities", ()), *rule.get("fromEntities", ())]
            assert direction == "egressDeny" or set(entities) <= {"world", "none"}

    def host(objects: list[Any], pods: Any) -> None:
        _spec(objects, ".base")["egress"].append({"toEntities": ["remote-node"]})

    assert any(line.startswith("P9") for line in _broken(host))


def test_P10_names_are_checked_on_the_web_ports() -> None:
    for rule in (rule for rule in _spec(_objects(values(SCOPED)), ".base")["egress"] if "toFQDNs" in rule):
        for group in rule["toPorts"]:
            [port] = group["ports"]
            assert port["port"] == "22" or "serverNames" in group or "http" in group["rules"]

    def unchecked(objects: list[Any], pods: Any) -> None:
        rule = next(r for r in _spec(objects, ".base")["egress"] if "toFQDNs" in r)
        del rule["toPorts"][0]["serverNames"]

    assert any(line.startswith("P10") for line in _broken(unchecked))


def test_P11_dns_answers_only_what_may_be_reached() -> None:
    rules = _spec(_objects(compose(NETWORKED)), ".base")["egress"]
    names = [entry for rule in rules for entry in rule.get("toPorts", [{}])[0].get("rules", {}).get("dns", ())]
    assert names and all(
        set(entry) == {"matchName"} and entry["matchName"].endswith(".sandbox.gauntlet-sandboxes.svc.cluster.local")
        for entry in names
    )

    def leak(objects: list[Any], pods: Any) -> None:
        rule = next(r for r in _spec(objects, ".base")["egress"] if "toEndpoints" in r and "toPorts" in r)
        rule["toPorts"][0]["rules"]["dns"].append({"matchPattern": "*"})

    assert any(line.startswith("P11") for line in _broken(leak))


def test_P12_sibling_names_need_no_resolver() -> None:
    pods = render(compose(NETWORKED), "kubernetes").pods
    assert pods["default"].hosts == ("default", "web", "db", "alone")
    text = str(_objects(compose(NETWORKED), "kubernetes"))
    assert "kube-dns" not in text and "'port': 53" not in text


def test_P13_the_queried_name_is_the_allowed_one() -> None:
    rules = _spec(_objects(values(SCOPED)), ".base")["egress"]
    for rule in (rule for rule in rules if "serverNames" in rule.get("toPorts", [{}])[0]):
        [entry] = rule["toFQDNs"]
        assert rule["toPorts"][0]["serverNames"] == [entry.get("matchName") or entry.get("matchPattern")]


def test_P14_both_ip_families_are_treated_apart() -> None:
    denied = [entry["cidr"] for entry in baseline("cilium").objects[0]["spec"]["egressDeny"][1]["toCIDRSet"]]
    assert {"169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "fd20:ce::254/128"} <= set(denied)
    blocks = _spec(_objects(compose(OPEN), "kubernetes"), ".egress")["egress"][-1]["to"]
    assert [entry["ipBlock"]["cidr"] for entry in blocks] == ["0.0.0.0/0", "::/0"]
    for entry in blocks:
        assert all((":" in hole) == (":" in entry["ipBlock"]["cidr"]) for hole in entry["ipBlock"]["except"])

    def four_only(objects: list[Any], pods: Any) -> None:
        entries = objects[0]["spec"]["egressDeny"][1]["toCIDRSet"]
        objects[0]["spec"]["egressDeny"][1]["toCIDRSet"] = [item for item in entries if ":" not in item["cidr"]]

    assert any("fd00:ec2::254" in line for line in _broken(four_only))


def test_P16_probes_of_the_kubelet_are_not_denied() -> None:
    for text in (OPEN, NETWORKED):
        assert "ingressDeny" not in str(_objects(compose(text)))


def test_P17_only_headless_services_and_no_node_port() -> None:
    services = [item for item in _objects(compose(NETWORKED)) if item["kind"] == "Service"]
    assert [item["spec"]["clusterIP"] for item in services] == ["None"]

    def node_port(objects: list[Any], pods: Any) -> None:
        objects[-1]["spec"] = {"type": "NodePort"}

    assert any(line.startswith("P17") for line in _broken(node_port))


def test_P19_policies_come_before_everything_else() -> None:
    kinds = [item["kind"] for item in _objects(compose(NETWORKED))]
    assert kinds[0] == "CiliumClusterwideNetworkPolicy" and kinds[-1] == "Service"

    def late(objects: list[Any], pods: Any) -> None:
        objects.insert(0, objects.pop())

    assert any(line.startswith("P19") for line in _broken(late))


def test_P21_entities_are_known_and_lower_case() -> None:
    def upper(objects: list[Any], pods: Any) -> None:
        _spec(objects, ".base")["egress"].append({"toEntities": ["World"]})

    assert any("World" in line for line in _broken(upper))


def test_P22_wide_patterns_are_warned_of() -> None:
    outcome = values('allowDomains: ["*.example", "*.s3.amazonaws.com"]\nallowCIDR: [0.0.0.0/1]')
    found = {warning.code for warning in outcome.report.warnings}
    assert {"W7", "W8", "W9"} <= found


def test_P23_every_pod_peer_carries_the_sandbox_id() -> None:
    outcome = compose(NETWORKED, cluster="cluster_name: east")
    for _item, _direction, rule in _every_rule(_objects(outcome, sandbox_id="sbx_42")):
        for peer in [*rule.get("toEndpoints", ()), *rule.get("fromEndpoints", ())]:
            labels = peer["matchLabels"]
            assert labels["k8s:io.cilium.k8s.policy.cluster"] == "east"
            assert labels.get("gauntlet.dev/sandbox-id") == "sbx_42" or "k8s:k8s-app" in labels

    def foreign(objects: list[Any], pods: Any) -> None:
        _spec(objects, ".base")["egress"].append({"toEndpoints": [{"matchLabels": {"app": "x"}}]})

    assert any(line.startswith("P23") for line in _broken(foreign))

    def anybody(objects: list[Any], pods: Any) -> None:
        _spec(objects, ".svc.web")["ingress"] = [{"from": [{"podSelector": {}}]}]

    assert any(line.startswith("P23") for line in _broken(anybody, compose(NETWORKED), "kubernetes"))

    def unlabelled(objects: list[Any], pods: Any) -> None:
        pods["web"] = PodSpec({"app": "x"})

    assert any("lacks the platform's labels" in line for line in _broken(unlabelled))


def test_a_broken_renderer_stops_the_rendering(monkeypatch: pytest.MonkeyPatch) -> None:
    from network.render import backend

    original = backend._RENDERERS["cilium"]

    def leaky(plan: Any) -> list[dict[str, Any]]:
        objects = original[0](plan)
        objects[0]["spec"]["egress"].append({"toEntities": ["all"]})
        return objects

    monkeypatch.setitem(backend._RENDERERS, "cilium", (leaky, original[1]))
    with pytest.raises(InvariantError, match="P9"):
        render(compose(NETWORKED), "cilium")


def test_refused_files_and_backend_gaps_render_nothing() -> None:
    with pytest.raises(Refused, match="R1 "):
        render(compose("services: {a: {network_mode: host}}"), "cilium")
    with pytest.raises(Refused, match="R27"):
        render(values(SCOPED), "gke-dpv2")


def test_fqdn_policies_have_the_documented_form() -> None:
    from network.render.fqdnschema import fqdn_problems

    cluster = "{backend: gke-dpv2, enforcement: {name_filter: true}}"
    outcome = values(
        "allowDomains: [a.example, intranet, '*.c.d', 'a*.*x*.y.z']\nallowDomainsPorts: [{port: 22}]", cluster=cluster
    )
    policy = next(item for item in _objects(outcome, "gke-dpv2") if item["kind"] == "FQDNNetworkPolicy")
    assert fqdn_problems(policy) == []
    for change in (
        {"egress": []},
        {"egress": [{"matches": [], "ports": [{"protocol": "TCP", "port": 1}]}]},
        {"egress": [{"matches": [{"name": "a.b", "pattern": "*.b"}], "ports": [{"protocol": "TCP", "port": 1}]}]},
        {"egress": [{"matches": [{"name": "a.b"}]}]},
        {"egress": [{"matches": [{"name": "a.b"}], "ports": [{"protocol": "TCP", "port": "1"}]}]},
        {"egress": [{"matches": [{"pattern": "**.b"}], "ports": [{"protocol": "TCP", "port": 1}]}]},
        {"extra": 1},
    ):
        broken = copy.deepcopy(policy)
        broken["spec"].update(change)
        assert fqdn_problems(broken), change
