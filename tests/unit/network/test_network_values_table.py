"""The table of values files, row by row."""

from __future__ import annotations

from network.model import DomainPort, Port
from network.render.backend import render
from tests.support.network_files import codes, values, verdict, warned


def _rules(outcome, kind: str = "base"):  # type: ignore[no-untyped-def]
    objects = render(outcome, "cilium").objects
    return next(item for item in objects if item["metadata"]["name"] == f"sandbox.{kind}")["spec"]


def test_values_nothing_grants_siblings_only() -> None:
    outcome = values("services: {default: {image: a}, web: {image: b}}")
    assert verdict(outcome, "default") == ("none", "siblings", ("web",))


def test_values_empty_file_is_the_implicit_default_on_gvisor() -> None:
    for text in ("", "{}", "services: {}"):
        outcome = values(text)
        assert list(outcome.matrix) == ["default"]
        assert outcome.matrix["default"].runtime_class == "gvisor"
        assert "W15" in warned(outcome)


def test_values_implicit_default_stands_beside_named_services() -> None:
    outcome = values("services: {web: {image: b}}")
    assert verdict(outcome, "web") == ("none", "siblings", ("default",))
    assert outcome.matrix["web"].runtime_class is None


def test_values_exact_domain_is_checked_by_name_on_443_and_80() -> None:
    outcome = values("allowDomains: [a.b]\nservices: {default: {image: x}}")
    assert verdict(outcome, "default") == ("listed", "listed", ())
    assert outcome.matrix["default"].domains == ("a.b",)
    [rule] = [rule for rule in _rules(outcome)["egress"] if "toFQDNs" in rule]
    assert rule["toFQDNs"] == [{"matchName": "a.b"}]
    assert rule["toPorts"] == [
        {"ports": [{"port": "443", "protocol": "TCP"}], "serverNames": ["a.b"]},
        {"ports": [{"port": "80", "protocol": "TCP"}], "rules": {"http": [{"host": r"a\.b"}]}},
    ]


def test_values_wildcard_is_one_label() -> None:
    outcome = values('allowDomains: ["*.b.example"]\nservices: {default: {image: x}}')
    [rule] = [rule for rule in _rules(outcome)["egress"] if "toFQDNs" in rule]
    assert rule["toFQDNs"] == [{"matchPattern": "*.b.example"}]
    assert rule["toPorts"][1]["rules"]["http"] == [{"host": r"[-a-z0-9_]*\.b\.example"}]


def test_values_star_is_the_whole_internet_rendered_as_world() -> None:
    outcome = values('allowDomains: ["*"]\nservices: {default: {image: x}}')
    assert verdict(outcome, "default") == ("all", "all", ())
    assert outcome.matrix["default"].domains == ()
    egress = _rules(outcome)["egress"]
    assert {"toEntities": ["world"]} in egress
    assert not any("toFQDNs" in rule for rule in egress)


def test_values_extra_port_is_opened_by_address() -> None:
    outcome = values(
        """
        allowDomains: [a.b, c.d]
        allowDomainsPorts: [{port: 443, protocol: UDP, domain: a.b}, {port: 22}]
        services: {default: {image: x}}
        """
    )
    assert outcome.ok
    rules = [rule for rule in _rules(outcome)["egress"] if "toFQDNs" in rule][2:]
    assert rules == [
        {
            "toFQDNs": [{"matchName": "a.b"}, {"matchName": "c.d"}],
            "toPorts": [{"ports": [{"port": "22", "protocol": "ANY"}]}],
        },
        {
            "toFQDNs": [{"matchName": "a.b"}],
            "toPorts": [{"ports": [{"port": "443", "protocol": "UDP"}]}],
        },
    ]
    grants = [grant.value for grant in outcome.matrix["default"].granted_by if grant.grant == "port"]
    assert grants == ["UDP/443 to a.b", "ANY/22 to every allowed domain"]
    assert DomainPort(22, "ANY").domain is None


def test_values_cidr_opens_addresses_and_leaves_dns_unchanged() -> None:
    outcome = values('allowCIDR: ["10.20.0.0/24", "2001:db8::/48"]\nservices: {default: {image: x}}')
    assert verdict(outcome, "default") == ("listed", "siblings", ())
    assert outcome.matrix["default"].cidrs == ("10.20.0.0/24", "2001:db8::/48")
    assert {"toCIDRSet": [{"cidr": "10.20.0.0/24"}, {"cidr": "2001:db8::/48"}]} in _rules(outcome)["egress"]


def test_values_world_opens_everything_outside() -> None:
    outcome = values("allowEntities: [world]\nservices: {default: {image: x}}")
    assert verdict(outcome, "default") == ("all", "all", ())
    assert "W1" in warned(outcome)


def test_values_entity_all_is_refused() -> None:
    assert codes(values("allowEntities: [all]\nservices: {default: {image: x}}")) == ["R19"]


def test_values_infrastructure_entities_are_refused() -> None:
    outcome = values("allowEntities: [cluster, host, remote-node, kube-apiserver, ingress, health, init, unmanaged]")
    assert codes(outcome) == ["R19"]
    assert len(outcome.report.problems) == 8


def test_values_networks_connect_members() -> None:
    outcome = values(
        """
        services: {default: {networks: [a]}, web: {networks: [a, b.c]}, db: {networks: [b.c]}}
        networks: {a: {}, b.c: {}}
        """
    )
    assert verdict(outcome, "web") == ("none", "siblings", ("db", "default"))
    assert verdict(outcome, "db") == ("none", "siblings", ("web",))


def test_values_network_settings_mean_nothing_and_say_so() -> None:
    outcome = values("services: {default: {networks: [a]}}\nnetworks: {a: {internal: true}}")
    assert outcome.ok
    assert "W12" in warned(outcome)


def test_values_isolated_service_is_denied_and_its_networks_ignored() -> None:
    outcome = values(
        """
        allowEntities: [world]
        services: {default: {networks: [a]}, vault: {networkIsolated: true, networks: [a]}}
        networks: {a: {}}
        """
    )
    assert verdict(outcome, "vault") == ("none", "none", ())
    assert verdict(outcome, "default") == ("all", "all", ())


def test_values_undeclared_networks_are_refused_not_opened() -> None:
    assert codes(values("services: {default: {networks: [a]}}")) == ["R7"]
    assert codes(values("services: {default: {networks: [default]}}")) == ["R7"]


def test_values_policy_cannot_be_turned_off() -> None:
    assert codes(values("networkPolicy: {enabled: false}\nservices: {default: {image: x}}")) == ["R26"]
    assert values("networkPolicy: {enabled: true}\nservices: {default: {image: x}}").ok


def test_values_additional_resources_are_refused() -> None:
    assert codes(values("additionalResources: [{kind: Pod}]")) == ["R24"]
    assert values("additionalResources: []").ok


def test_values_colliding_labels_are_refused() -> None:
    assert codes(values("labels: {inspect/sandbox-id: x}")) == ["R23"]


def test_values_ports_limit_siblings_to_them_and_echo() -> None:
    outcome = values(
        """
        services:
          default: {image: x}
          web: {ports: [{port: 80, protocol: TCP}, {port: 80, protocol: TCP}, {port: 53, protocol: UDP}]}
        """
    )
    assert outcome.matrix["web"].ports == (Port(53, "UDP"), Port(80, "TCP"))
    assert outcome.matrix["default"].ports is None
    limited, echo = _rules(outcome, "svc.web")["ingress"]
    assert limited["toPorts"] == [{"ports": [{"port": "53", "protocol": "UDP"}, {"port": "80", "protocol": "TCP"}]}]
    fields = [{"family": "IPv4", "type": 8}, {"family": "IPv6", "type": 128}]
    assert echo["icmps"] == [{"fields": fields}]


def test_values_port_protocol_defaults_to_tcp_and_any_absorbs() -> None:
    outcome = values("services: {default: {ports: [{port: 80}, {port: 80, protocol: ANY}, {port: 1, protocol: TCP}]}}")
    assert outcome.matrix["default"].ports == (Port(1, "TCP"), Port(80, "ANY"))


def test_values_cluster_default_counts_as_unset() -> None:
    outcome = values("services: {default: {runtimeClassName: CLUSTER_DEFAULT}, b: {runtimeClassName: kata}}")
    assert outcome.matrix["default"].runtime_class is None
    assert outcome.matrix["b"].runtime_class == "kata"
    assert "W11" in warned(outcome)


def test_runtime_of_the_eval_set_wins_over_the_task() -> None:
    outcome = values(
        "services: {default: {runtimeClassName: runc}, b: {image: x}}", isolation="isolation: {runtime_class: gvisor}"
    )
    assert [verdict.runtime_class for verdict in outcome.matrix.values()] == ["gvisor", "gvisor"]


def test_runtime_order_task_then_cluster_default() -> None:
    text = "services: {default: {image: x}, b: {runtimeClassName: kata}, g: {resources: {limits: {nvidia.com/gpu: 1}}}}"
    outcome = values(text, cluster="default_runtime_class: gvisor")
    found = {name: verdict.runtime_class for name, verdict in outcome.matrix.items()}
    assert found == {"default": "gvisor", "b": "kata", "g": None}


def test_implicit_default_follows_the_cluster() -> None:
    assert values("{}", cluster="runtime_classes: [gvisor]").matrix["default"].runtime_class == "gvisor"
    assert values("{}", cluster="runtime_classes: [runc]").matrix["default"].runtime_class is None
    assert values("{}", cluster="default_runtime_class: kata").matrix["default"].runtime_class == "kata"
