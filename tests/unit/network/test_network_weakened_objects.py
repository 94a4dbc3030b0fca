"""Rendered objects that somebody weakened: `evaluate` shows what is granted, or names what must not be, and exits 1."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.network import app
from network.evaluate.invariants import violations
from network.evaluate.matrix import evaluate
from network.render.backend import render
from tests.support.network_files import compose, values

Json = dict[str, Any]
LISTED = """
    services: {a: {networks: [n]}, b: {networks: [n]}, c: {network_mode: none}}
    networks: {n: {internal: true}, m: {}}
    x-k8s: {allow_domains: [a.example, "*.b.example"]}
"""
CLUSTER = "protected: {vpc: [10.0.0.0/20], nodes: [10.1.0.0/24], pods: [10.8.0.0/14], services: [10.96.0.0/16]}"


def listed() -> Json:
    found: Json = json.loads(json.dumps(render(compose(LISTED), "cilium").to_json()))
    return found


def spec(document: Json, name: str = "sandbox.base") -> Json:
    found: Json = next(item for item in document["objects"] if item["metadata"]["name"] == name)["spec"]
    return found


def named(document: Json) -> list[Json]:
    return [rule for rule in spec(document)["egress"] if "toFQDNs" in rule]


def leave(**rule: Any) -> Callable[[Json], Any]:
    return lambda document: spec(document)["egress"].append(rule)


def enter(**rule: Any) -> Callable[[Json], Any]:
    return lambda document: spec(document)["ingress"].append(rule)


def http(document: Json) -> Json:
    found: Json = named(document)[0]["toPorts"][1]
    return found


SSH = [{"ports": [{"port": "22", "protocol": "TCP"}]}]
CASES: dict[str, tuple[Callable[[Json], Any], str]] = {
    "serverNames removed": (lambda d: named(d)[0]["toPorts"][0].pop("serverNames"), "web ports of"),
    "serverNames of everything": (lambda d: named(d)[0]["toPorts"][0].update(serverNames=["**"]), "web ports of"),
    "another server name": (lambda d: named(d)[0]["toPorts"][0].update(serverNames=["z.example"]), "web ports of"),
    "Host removed": (lambda d: http(d).pop("rules"), "web ports of"),
    "Host of everything": (lambda d: http(d)["rules"]["http"][0].update(host=".*"), "web ports of"),
    "a second Host": (lambda d: http(d)["rules"]["http"].append({"path": "/"}), "web ports of"),
    "Host in part": (lambda d: http(d)["rules"]["http"][0].update(host="a.example"), "web ports of"),
    "names without ports": (leave(toFQDNs=[{"matchName": "a.example"}]), "web ports of a.example"),
    "names on any 443": (
        leave(toFQDNs=[{"matchName": "a.example"}], toPorts=[{"ports": [{"port": "443"}]}]),
        "web ports of a.example",
    ),
    "resolver's other port": (
        lambda d: spec(d)["egress"][1]["toPorts"].append({"ports": [{"port": "5353", "protocol": "UDP"}]}),
        "the cluster's resolvers beside port 53",
    ),
    "unfiltered resolver": (lambda d: spec(d)["egress"][1]["toPorts"][0].pop("rules"), "ask for every name"),
    "egress to the host": (leave(toEntities=["host"]), "it may connect to the entity host"),
    "egress to the API server": (leave(toEntities=["kube-apiserver"]), "it may connect to the entity kube-apiserver"),
    "egress to another sandbox": (
        leave(toEndpoints=[{"matchLabels": {"gauntlet.dev/sandbox-id": "other"}}]),
        "it may connect to pods that are not of its sandbox",
    ),
    "egress to one pod elsewhere": (
        leave(toEndpoints=[{"matchLabels": {"k8s:io.kubernetes.pod.namespace": "prod", "app": "db"}}]),
        "it may connect to pods that are not of its sandbox",
    ),
    "ingress from the host": (enter(fromEntities=["host"]), "it may be reached by the entity host"),
    "ingress from another namespace": (
        enter(fromEndpoints=[{"matchLabels": {"k8s:io.kubernetes.pod.namespace": "prod"}}]),
        "it may be reached by pods that are not of its sandbox",
    ),
    "ingress from one address": (enter(fromCIDR=["203.0.113.7/32"]), "it may be reached by 203.0.113.7/32"),
    "ingress from the world on UDP": (
        enter(fromEntities=["world"], toPorts=[{"ports": [{"port": "22", "protocol": "UDP"}]}]),
        "it may be reached by the world",
    ),
    "the default deny off": (
        lambda d: spec(d).update(enableDefaultDeny={"egress": False}),
        "enableDefaultDeny",
    ),
    "the baseline removed": (lambda d: d["objects"].pop(0), "it can connect to 169.254.169.254"),
    "the baseline's denies removed": (lambda d: d["objects"][0]["spec"].pop("egressDeny"), "169.254.169.254"),
    "the platform's role removed": (
        lambda d: d["pods"]["b"]["labels"].pop("gauntlet.dev/role"),
        "b: it can connect to 169.254.169.254",
    ),
    "a pod of another sandbox": (
        lambda d: d["pods"]["c"]["labels"].update({"gauntlet.dev/sandbox-id": "other"}),
        "several sandboxes",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_weakened_object_is_named(case: str) -> None:
    document = listed()
    assert violations(document) == []
    change, words = CASES[case]
    change(document)
    found = violations(document)
    assert any(words in text for text in found), found


@pytest.mark.parametrize("case", ["serverNames removed", "Host removed", "Host of everything", "names without ports"])
def test_a_domain_without_a_check_of_names_is_not_a_listed_domain_alone(case: str) -> None:
    document = listed()
    before = evaluate(document)
    assert before["services"]["b"]["domains"] == ["*.b.example", "a.example"] and "domain_ports" not in before
    CASES[case][0](document)
    after = evaluate(document)
    assert after["services"]["b"]["domains"] == ["*", "*.b.example", "a.example"]
    assert any(entry["port"] in (0, 80, 443) for entry in after["domain_ports"]["b"])


def test_an_extra_port_of_a_domain_is_shown_in_the_explanation_and_from_the_objects() -> None:
    document = listed()
    leave(toFQDNs=[{"matchName": "a.example"}], toPorts=SSH)(document)
    entry = {"domain": "a.example", "port": 22, "protocol": "TCP"}
    assert evaluate(document)["domain_ports"] == {"default": [entry], "b": [entry]}
    granted = values("allowDomains: [a.example]\nallowDomainsPorts: [{port: 22, protocol: TCP, domain: a.example}]")
    assert granted.to_json()["domain_ports"] == {"default": [entry]}
    assert "domain_ports" not in compose(LISTED).to_json()


@pytest.mark.parametrize("backend", ["gke-dpv2", "kubernetes"])
def test_protected_ranges_of_the_cluster_are_judged_when_named(backend: str) -> None:
    outcome = compose("services: {a: {network_mode: bridge}}", cluster=CLUSTER)
    document = json.loads(json.dumps(render(outcome, backend).to_json()))  # type: ignore[arg-type]
    ranges = ["10.0.0.0/20", "10.8.0.0/14"]
    assert violations(document, ranges) == []
    for item in document["objects"]:
        if item["kind"] == "CiliumClusterwideNetworkPolicy":
            item["spec"]["egressDeny"].pop()
        for rule in item["spec"].get("egress", ()):
            for peer in rule.get("to", ()):
                holes = peer.get("ipBlock", {}).get("except", [])
                if "10.8.0.0/14" in holes:
                    holes.remove("10.8.0.0/14")
    assert "it can connect to 10.8.0.0 of the protected range 10.8.0.0/14" in "\n".join(violations(document, ranges))
    assert not any("10.0.0.0/20" in text for text in violations(document, ranges) if "range" in text)


@pytest.mark.parametrize("backend", ["cilium", "kubernetes"])
def test_annotations_and_other_kinds_are_no_rules(backend: str) -> None:
    document = json.loads(json.dumps(render(compose("services: {a: {image: x}}"), backend).to_json()))  # type: ignore[arg-type]
    document["objects"][-1]["metadata"]["annotations"] = {"ingress": "x", "to": "y", "fromEndpoints": "z"}
    config = {"kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"ingress": "5", "ports": ""}}
    document["objects"].append(config)
    assert violations(document) == []


def run(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def test_the_command_prints_the_problems_and_ends_with_one() -> None:
    document = listed()
    sound = run("evaluate", "-", "--json", stdin=json.dumps(document))
    assert sound.exit_code == 0 and set(json.loads(sound.stdout)) == {"services"}
    weak = copy.deepcopy(document)
    enter(fromEntities=["host"])(weak)
    told = run("evaluate", "-", "--json", stdin=json.dumps(weak))
    assert told.exit_code == 1
    problem = json.loads(told.stdout)["problems"][0]
    assert problem["name"] == "RENDERED_VIOLATION" and problem["service"] == "default" and problem["fix"]
    assert "entity host" in problem["message"] and "default: it may be reached by the entity host" in told.stderr
    assert run("evaluate", "-", stdin=json.dumps(weak)).exit_code == 1


def test_the_command_compares_with_an_explanation(tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text("allowDomains: [a.example]\nallowDomainsPorts: [{port: 22, protocol: TCP}]\n")
    explained = tmp_path / "explained.json"
    explained.write_text(run("explain", tmp_path / "task.yaml", "--json").stdout)
    rendered = run("render", tmp_path / "task.yaml", "--backend", "cilium", "--json").stdout
    same = run("evaluate", "-", "--against", explained, "--json", stdin=rendered)
    assert same.exit_code == 0 and json.loads(same.stdout)["diff"] == []
    weak = json.loads(rendered)
    leave(toFQDNs=[{"matchName": "a.example"}], toPorts=[{"ports": [{"port": "25", "protocol": "TCP"}]}])(weak)
    other = run("evaluate", "-", "--against", explained, "--json", stdin=json.dumps(weak))
    assert other.exit_code == 1
    [change] = json.loads(other.stdout)["diff"]
    assert (change["service"], change["field"]) == ("default", "domain_ports")
    weak = json.loads(rendered)
    leave(toCIDR=["203.0.113.0/24"])(weak)
    other = run("evaluate", "-", "--against", explained, stdin=json.dumps(weak))
    assert other.exit_code == 1 and "default cidrs: [] -> ['203.0.113.0/24']" in other.stderr
    assert run("evaluate", "-", "--against", tmp_path / "task.yaml", stdin=rendered).exit_code == 2


def test_a_refused_rendering_is_no_rendering_that_grants_nothing(tmp_path: Path) -> None:
    (tmp_path / "task.yaml").write_text("allowDomains: [a.example]\n")
    refused = run("render", tmp_path / "task.yaml", "--backend", "kubernetes", "--json")
    assert refused.exit_code == 1
    told = run("evaluate", "-", "--json", stdin=refused.stdout)
    assert told.exit_code == 1 and "R27" in told.stderr and not told.stdout


@pytest.mark.parametrize("kind", [[], {}, None, 5, True])
def test_a_kind_that_is_no_text_is_told(kind: object) -> None:
    told = run("evaluate", "-", stdin=json.dumps({"objects": [{"kind": kind}], "pods": {}}))
    assert told.exit_code == 1 and "objects[0].kind: expected a string" in told.stderr


def test_the_cluster_files_ranges_are_judged_by_the_command(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    outcome = compose("services: {a: {network_mode: bridge}}")  # rendered without the cluster file
    document = json.dumps(render(outcome, "cilium").to_json())
    assert run("evaluate", "-", stdin=document).exit_code == 0
    told = run("evaluate", "-", "--cluster", tmp_path / "cluster.yaml", stdin=document)
    assert told.exit_code == 1 and "protected range 10.8.0.0/14" in told.stderr


def test_the_baseline_alone_reads_no_file(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("services: {a: {network_mode: host}}")
    told = run("render", tmp_path / "bad.yaml", "--baseline-only", "--backend", "cilium")
    assert told.exit_code == 2 and "bad.yaml" in told.stderr
