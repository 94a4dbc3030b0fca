"""Rejections R14-R28 and R42: allow-lists, ports, labels, and what a values file may not hold."""

from __future__ import annotations

import pytest

from network.cluster import Cluster, Enforcement
from tests.support.network_files import codes, compose, rejected, values, warned

CLUSTER = """
protected:
  vpc: [10.0.0.0/20]
  nodes: 10.1.0.0/24
  pods: [10.8.0.0/14, "fd12::/64"]
  services: [10.96.0.0/16]
  control_plane: [203.0.113.5/32]
"""


@pytest.mark.parametrize(
    "entry",
    ["https://a.b", "a.b/path", "a.b:443", "a b.c", "__.a.b", "1.2.3.4", "[::1]", "::1", "a..b", ".a", "",
     "a" * 64 + ".b", "ü.example", "a.b\\nx", "a.b{", "x.**.b", "***", "a**.b", "0x7f.1", "2130706433",
     "169.254.169.*", ".".join(["a" * 60] * 5)],
)  # fmt: skip
def test_R14_domain_syntax(entry: str) -> None:
    assert codes(values(f'allowDomains: ["{entry}"]')) == ["R14"]


@pytest.mark.parametrize("entry", ["a.b", "A.B.", "_dmarc.a.b", "xn--bcher-kva.example", "*.a.b", "**.a.b", "a-*.b.c"])
def test_R14_accepts_names_and_patterns(entry: str) -> None:
    outcome = values(f'allowDomains: ["{entry}"]')
    assert outcome.ok
    assert outcome.matrix["default"].domains == (entry.lower().removesuffix("."),)


@pytest.mark.parametrize(
    "entry",
    ["x.cluster.local", "*.cluster.local", "cluster.local", "**.local", "db.ns.svc", "*.svc", "metadata",
     "metadata.google.internal", "*.internal", "*.*", "example.*", "kubernetes.default.svc.cluster.local",
     "localhost", "*.in*l"],
)  # fmt: skip
def test_R15_domain_of_the_cluster(entry: str) -> None:
    assert codes(values(f'allowDomains: ["{entry}"]')) == ["R15"]


@pytest.mark.parametrize("entry", ["internal.example.com", "svc.example", "x.local"])
def test_R15_spares_ordinary_names(entry: str) -> None:
    assert values(f"allowDomains: [{entry}]").ok


@pytest.mark.parametrize(
    "entry",
    ["10.0.0.0/33", "10.0.0.1/24", "10.0.0.0/0", "300.1.1.1/8", "a.b", "", "10.0.0.0/255.0.0.0", "fe80::1%eth0",
     "10.0.0.0/8/8"],
)  # fmt: skip
def test_R16_cidr_syntax(entry: str) -> None:
    assert codes(values(f'allowCIDR: ["{entry}"]')) == ["R16"]


def test_R16_shows_the_canonical_network() -> None:
    [problem] = values('allowCIDR: ["10.0.0.0/0"]').report.problems
    assert "0.0.0.0/0" in problem.message


@pytest.mark.parametrize(
    "entry",
    ["169.254.169.254/32", "169.254.0.0/16", "fe80::/64", "fd00:ec2::254/128", "fd20:ce::254/128", "168.63.129.16/32",
     "100.100.100.200", "::ffff:169.254.169.254/128", "64:ff9b::a9fe:a9fe/128", "2002:a9fe:a9fe::/48"],
)  # fmt: skip
def test_R17_metadata_is_protected_without_a_cluster_file(entry: str) -> None:
    assert codes(values(f'allowCIDR: ["{entry}"]')) == ["R17"]


@pytest.mark.parametrize(
    ("entry", "name"),
    [("10.0.1.0/24", "vpc"), ("10.1.0.0/24", "nodes"), ("10.9.0.0/16", "pods"), ("fd12::/96", "pods"),
     ("10.96.0.10", "services"), ("203.0.113.5/32", "control_plane")],
)  # fmt: skip
def test_R17_ranges_of_the_cluster_file(entry: str, name: str) -> None:
    text = f'allowCIDR: ["{entry}"]'
    outcome = values(text, cluster=CLUSTER)
    assert codes(outcome) == ["R17"]
    assert name in outcome.report.problems[0].message
    assert values(text).ok


def test_R17_a_network_around_a_protected_range_is_a_warning() -> None:
    outcome = values('allowCIDR: ["10.0.0.0/8"]', cluster=CLUSTER)
    assert outcome.ok and "W10" in warned(outcome)
    assert outcome.matrix["default"].cidrs == ("10.0.0.0/8",)


@pytest.mark.parametrize("entity", ["World", "WORLD", "internet", "none", "world-ipv4", ""])
def test_R18_entity_unknown(entity: str) -> None:
    assert codes(values(f'allowEntities: ["{entity}"]')) == ["R18"]


@pytest.mark.parametrize(
    "entity",
    ["all", "cluster", "host", "remote-node", "kube-apiserver", "ingress", "health", "init", "unmanaged"],
)
def test_R19_entity_infra(entity: str) -> None:
    assert codes(values(f"allowEntities: [{entity}]")) == ["R19"]
    assert codes(compose(f"services: {{a: {{image: x}}}}\nx-k8s: {{allow_entities: [{entity}]}}")) == ["R19"]


@pytest.mark.parametrize(
    "entry", ["{port: 80, protocol: TCP}", "{port: 443}", "{port: 443, protocol: ANY}", "{port: 80}"]
)
def test_R20_port_bypass(entry: str) -> None:
    assert codes(values(f"allowDomains: [a.b]\nallowDomainsPorts: [{entry}]")) == ["R20"]


@pytest.mark.parametrize(
    "text",
    [
        "allowDomains: [a.b]\nallowDomainsPorts: [{port: 22, domain: c.d}]",
        "allowDomainsPorts: [{port: 22}]",
        "allowDomains: []\nallowDomainsPorts: [{port: 22, domain: a.b}]",
    ],
)
def test_R21_port_domain(text: str) -> None:
    assert codes(values(text)) == ["R21"]


@pytest.mark.parametrize(
    "entry", ["{port: 0}", "{port: 65536}", "{port: '22'}", "{port: true}", "{port: 22, protocol: tcp}", "{port: -1}"]
)
def test_R22_port_range(entry: str) -> None:
    assert codes(values(f"allowDomains: [a.b]\nallowDomainsPorts: [{entry}]")) == ["R22"]
    assert rejected(values(f"services: {{default: {{ports: [{entry}]}}}}")) == [("R22", "default")]


@pytest.mark.parametrize(
    "key",
    ["gauntlet.dev/sandbox-id", "gauntlet.dev/anything", "inspect/service", "service", "app.kubernetes.io/instance",
     "app.kubernetes.io/name", "app.kubernetes.io/part-of", "io.cilium.k8s.policy.cluster", "'k8s:app'", "network-a",
     "io.kubernetes.pod.namespace"],
)  # fmt: skip
def test_R23_reserved_label(key: str) -> None:
    assert codes(values(f"labels: {{{key}: x}}")) == ["R23"]
    assert rejected(values(f"services: {{default: {{labels: {{{key}: x}}}}}}")) == [("R23", "default")]
    assert codes(values(f"annotations: {{{key}: x}}")) == ["R23"]


def test_R23_spares_other_labels() -> None:
    assert values("labels: {team: red, example.com/owner: x}\nannotations: {inspectTaskName: x}").ok


@pytest.mark.parametrize(
    "text",
    [
        "additionalResources: [x]",
        "services: {default: {initContainers: [{name: a, image: b}]}}",
        "services: {default: {volumes: [{name: v, emptyDir: {}}]}}",
        "services: {default: {volumes: ['/host:/x']}}",
        "volumes: {v: {spec: {nfs: x}}}",
    ],
)
def test_R24_extra_resources(text: str) -> None:
    assert codes(values(text)) == ["R24"]


def test_R24_spares_named_volumes() -> None:
    assert values("volumes: {v: {}}\nservices: {default: {volumes: ['v:/data'], initContainers: []}}").ok


@pytest.mark.parametrize("record", ["target.example", "x.cdn.example", "'a{b}'", "'a b'", "a..b", "'a\\nb'"])
def test_R25_dns_record(record: str) -> None:
    text = (
        f"allowDomains: [target.example, '*.cdn.example']\nservices: {{default: {{additionalDnsRecords: [{record}]}}}}"
    )
    assert rejected(values(text)) == [("R25", "default")]


def test_R25_records_are_published_as_host_names() -> None:
    outcome = values("services: {web: {additionalDnsRecords: [my-fake.example]}}")
    assert outcome.decision is not None
    assert outcome.decision.names.hosts["web"] == ("web", "my-fake.example")


def test_R26_policy_off_by_the_file() -> None:
    assert codes(values("networkPolicy: {enabled: false}")) == ["R26"]
    assert codes(values("networkPolicy: {enabled: 'false'}")) == ["R41"]


@pytest.mark.parametrize(
    "cluster",
    ["enforcement: false", "enforcement: never", "enforcement: {policy: false}",
     "{backend: cilium, versions: {cilium: 1.17.4}}"],
)  # fmt: skip
def test_R26_policy_unsupported_on_the_cluster(cluster: str) -> None:
    assert codes(values("{}", cluster=cluster)) == ["R26"]
    assert values("{}").ok


def test_R26_cluster_with_another_backend() -> None:
    assert codes(values("{}", cluster="backend: gke-dpv2", backend="cilium")) == ["R26"]


@pytest.mark.parametrize(
    ("cluster", "path", "line"),
    [
        ("backend: cilium\nenforcement: false", "enforcement", 2),
        ("backend: cilium\nenforcement:\n  name_filter: true\n  policy: false", "enforcement.policy", 4),
        ("cluster_name: east\nbackend: gke-dpv2", "backend", 2),
        ("backend: cilium\nversions:\n  kubernetes: 1.36\n  cilium: '1.17'", "versions.cilium", 4),
    ],
)
def test_R26_names_the_cluster_file_and_its_key(cluster: str, path: str, line: int) -> None:
    [problem] = values("{}", cluster=cluster, backend="cilium").report.problems
    assert (problem.code, problem.file, problem.path, problem.line) == ("R26", "cluster.yaml", path, line)


def test_R26_of_a_cluster_without_a_file_names_the_network_file() -> None:
    [problem] = values("{}", cluster=Cluster(enforcement=Enforcement(policy=False))).report.problems
    assert (problem.code, problem.file, problem.path) == ("R26", "values.yaml", "")


def test_R27_of_the_implicit_default_service_names_the_grant() -> None:
    text = "services:\n  web: {image: a}\nallowDomains:\n- a.example\n"
    found = {item.service: item for item in values(text, backend="kubernetes").report.problems}
    assert {item.code for item in found.values()} == {"R27"}
    assert (found["default"].file, found["default"].path, found["default"].line) == (
        "values.yaml",
        "allowDomains[0]",
        4,
    )
    assert (found["web"].path, found["web"].line) == ("services.web", 2)


@pytest.mark.parametrize("backend", ["gke-dpv2", "kubernetes"])
def test_R27_domain_lists_need_a_filter_of_names(backend: str) -> None:
    text = "allowDomains: [a.b]\nservices: {default: {image: x}, vault: {networkIsolated: true}}"
    assert rejected(values(text, backend=backend)) == [("R27", "default")]
    assert rejected(values(text, cluster=f"backend: {backend}")) == [("R27", "default")]
    assert values(text, backend="cilium").ok
    assert values(text).ok


@pytest.mark.parametrize(
    "text",
    ["{a: {network_mode: bridge}}", "{a: {image: x}, b: {image: y}}", "{a: {image: x, runtime: kata}}"],
)
def test_R27_docker_runs_one_service_without_network(text: str) -> None:
    outcome = compose(f"services: {text}", backend="docker")
    assert codes(outcome) == ["R27"]


def test_R27_docker_refuses_human_evals_and_takes_lone_services() -> None:
    assert codes(compose("services: {a: {image: x}}", backend="docker", human_eval=True)) == ["R27"]
    assert compose("services: {a: {image: x}}", backend="docker").ok
    assert compose("services: {a: {network_mode: none, runtime: gvisor}}", backend="docker").ok


def test_R27_patterns_by_cilium_version() -> None:
    deep, wild = "allowDomains: ['**.a.example']", "allowDomains: ['*.a.example']"
    assert codes(values(deep, cluster="{backend: cilium, versions: {cilium: 1.18.0}}")) == ["R27"]
    assert values(deep, cluster="{backend: cilium, versions: {cilium: v1.20.2}}").ok
    assert values(wild, cluster="{backend: cilium, versions: {cilium: 1.18.0}}").ok
    assert "R27" in codes(values(wild, cluster="{backend: cilium, versions: {cilium: '1.17'}}"))


def test_R27_deep_patterns_on_gke() -> None:
    cluster = "{backend: gke-dpv2, enforcement: {name_filter: true}}"
    assert codes(values("allowDomains: ['**.a.example']", cluster=cluster)) == ["R27"]
    assert values("allowDomains: ['*.a.example']", cluster=cluster).ok


def test_R27_runtime_class_that_is_not_installed() -> None:
    text = "services: {default: {runtimeClassName: kata}}"
    assert rejected(values(text, cluster="runtime_classes: [gvisor]")) == [("R27", "default")]
    assert values(text).ok


@pytest.mark.parametrize("text", ["services: ~", "allowDomains: ", "networks: {a: }"])
def test_R28_nulls(text: str) -> None:
    assert rejected(values(text)) == [("R28", None)]


def test_R28_one_entry_a_service_with_all_paths() -> None:
    outcome = values("services: {default: , web: {image: ~, env: [{name: A, value: ~}]}}")
    assert rejected(outcome) == [("R28", "default"), ("R28", "web")]
    message = next(item.message for item in outcome.report.problems if item.service == "web")
    assert "services.web.image" in message and "services.web.env[0].value" in message


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("allowDomain: [a.b]", "allowDomains"),
        ("services: {default: {runtimeClass: gvisor}}", "runtimeClassName"),
        ("services: {default: {network_mode: none}}", "networkIsolated"),
        ("networkPolicy: {enable: true}", "enabled"),
        ("services: {default: {ports: [{port: 80, name: x}]}}", "known keys"),
    ],
)
def test_R42_values_key(text: str, hint: str) -> None:
    outcome = values(text)
    assert codes(outcome) == ["R42"]
    assert hint in outcome.report.problems[0].message + outcome.report.problems[0].fix


@pytest.mark.parametrize(
    "text", ["allowDomains: a.b", "services: [x]", "services: {default: [x]}", "allowDomains: [1]"]
)
def test_values_of_the_wrong_type_are_R41(text: str) -> None:
    assert codes(values(text)) == ["R41"]


@pytest.mark.parametrize(
    "service",
    ["image: [x]", "command: run", "env: {A: x}", "resources: []", "dnsRecord: 'yes'", "workingDir: 7",
     "volumes: 'v:/x'", "initContainers: {}", "nodeSelector: x"],
)  # fmt: skip
def test_a_services_keys_have_the_charts_types(service: str) -> None:
    assert rejected(values(f"services: {{default: {{{service}}}}}")) == [("R41", "default")]
