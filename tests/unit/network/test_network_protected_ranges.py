"""Protected ranges together, whole families, IPv4 addresses inside IPv6, and address families apart."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from network.cidrs import Protected
from network.cluster import ClusterError, read_cluster
from network.evaluate.flows import Flow, decide, read_objects
from network.evaluate.identities import address, pod
from network.evaluate.matrix import evaluate
from network.model import Backend, matrix_json
from network.render.backend import baseline, render
from tests.support.network_files import checked, codes, values, warned

HALVES = "protected: {nodes: [10.0.0.0/16], pods: [10.1.0.0/16]}"
RENDERED: tuple[Backend, ...] = ("cilium", "gke-dpv2", "kubernetes")


def reached(outcome: Any, backend: Backend, text: str) -> bool:
    """Whether TCP 80 of the address is open to `default`."""
    rendered = render(outcome, backend, namespace="n").to_json()
    source = pod("n", rendered["pods"]["default"]["labels"])
    return decide(read_objects(rendered["objects"]), Flow(source, address(text), "TCP", 80)).allowed


def listed(cidr: str, **options: Any) -> Any:
    return values(f'allowCIDR: ["{cidr}"]\nservices: {{default: {{image: x}}}}', **options)


@pytest.mark.parametrize("cidr", ["10.0.0.0/15", "10.0.0.0/16", "10.0.255.0/24", "10.1.2.3"])
def test_what_protected_ranges_cover_together_is_inside_them(cidr: str) -> None:
    assert codes(listed(cidr, cluster=HALVES)) == ["R17"]
    [problem] = listed("10.0.0.0/15", cluster=HALVES).report.problems
    assert "nodes" in problem.message and "pods" in problem.message
    strict = f"isolation: {{level: strict, runtime_class: gvisor, allow_cidr: ['{cidr}']}}"
    assert "R17" in codes(checked("services: {a: {image: x}}", isolation=strict, cluster=HALVES))


def test_four_quarters_of_a_network_leave_nothing_of_it_open() -> None:
    cluster = "protected: {vpc: [10.0.0.0/18, 10.0.64.0/18], nodes: [10.0.128.0/18], services: [10.0.192.0/18]}"
    assert codes(listed("10.0.0.0/16", cluster=cluster)) == ["R17"]
    outcome = listed("10.0.0.0/15", cluster=cluster)
    for backend in ("cilium", "gke-dpv2"):
        assert evaluate(render(outcome, backend).to_json())["services"] == matrix_json(outcome.matrix, provenance=False)
        assert not reached(outcome, backend, "10.0.77.1") and reached(outcome, backend, "10.1.0.1")


@pytest.mark.parametrize(
    "protected",
    ["{vpc: ['::/0']}", "{vpc: [0.0.0.0/0]}", "{vpc: [0.0.0.0/1], nodes: [128.0.0.0/1]}",
     "{pods: ['::/1', '8000::/1']}"],
)  # fmt: skip
def test_a_cluster_file_cannot_protect_a_whole_address_family(protected: str) -> None:
    """Every grant would be void there, and an address rule cannot leave all of itself out."""
    with pytest.raises(ClusterError, match=r"every address of IPv[46]"):
        read_cluster(f"protected: {protected}", "c.yaml")


@pytest.mark.parametrize("cidr", ["64:ff9b::/96", "64:ff9b::a9fe:0/111", "2002::/16", "64:ff9b::/32"])
def test_networks_that_carry_ipv4_addresses_leave_the_protected_ones_out(cidr: str) -> None:
    outcome = listed(cidr)
    assert "W10" in warned(outcome) and ("W9" in warned(outcome)) == (cidr != "64:ff9b::a9fe:0/111")
    inside = {"64": "64:ff9b::a9fe:a9fe", "20": "2002:a9fe:a9fe::1"}[cidr[:2]]
    for backend in RENDERED:
        assert not reached(outcome, backend, inside)
        assert evaluate(render(outcome, backend).to_json())["services"] == matrix_json(outcome.matrix, provenance=False)
    strict = f"isolation: {{level: strict, runtime_class: gvisor, allow_cidr: ['{cidr}']}}"
    assert codes(checked("services: {a: {image: x}}", isolation=strict)) == (
        ["R35"] if cidr != "64:ff9b::a9fe:0/111" else []
    )


@pytest.mark.parametrize("cidr", ["::ffff:0:0/96", "::ffff:8.8.8.0/120"])
def test_a_mapped_network_is_written_as_the_ipv4_one(cidr: str) -> None:
    """No packet carries such an address, so a rule for it would match nothing."""
    assert codes(listed(cidr)) == ["R16"]
    assert codes(listed("::ffff:169.254.0.0/112")) == ["R17"]


@pytest.mark.parametrize("backend", RENDERED)
def test_the_whole_internet_has_no_way_to_metadata_inside_ipv6(backend: Backend) -> None:
    cluster = "protected: {vpc: [10.9.0.0/16], pods: [10.8.0.0/16, 'fd01::/64'], nodes: [10.1.0.0/24, 'fd02::/64']}"
    outcome = values("allowEntities: [world]\nservices: {default: {image: x}}", cluster=cluster)
    for text in ("169.254.169.254", "10.9.1.1"):
        number = int(ipaddress.ip_address(text))
        for carried in (
            str(ipaddress.IPv6Address((0x64FF9B << 96) + number)),
            str(ipaddress.IPv6Address((0x2002 << 112) + (number << 80) + 1)),
        ):
            assert not reached(outcome, backend, carried), carried
    assert reached(outcome, backend, "2606:4700::1111") and reached(outcome, backend, "64:ff9b::808:808")


def test_the_baseline_closes_ipv4_metadata_in_every_form() -> None:
    denied = [
        ipaddress.ip_network(entry["cidr"])
        for rule in baseline("cilium").objects[0]["spec"]["egressDeny"]
        for entry in rule.get("toCIDRSet", ())
    ]
    for text in ("64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::", "64:ff9b::a83f:8110"):
        assert any(ipaddress.ip_address(text) in net for net in denied), text


FOUR = "protected: {pods: [10.8.0.0/14], nodes: [10.1.0.0/24]}"
BOTH = "protected: {pods: [10.8.0.0/14, 'fd01::/64'], nodes: [10.1.0.0/24, 'fd02::/64']}"
OPEN = "allowEntities: [world]\nservices: {default: {image: x}}"


def blocks(outcome: Any, direction: str) -> dict[str, list[str]]:
    """`{cidr: except}` of the address peers of one direction on plain NetworkPolicy."""
    peer = "to" if direction == "egress" else "from"
    return {
        entry["ipBlock"]["cidr"]: entry["ipBlock"].get("except", [])
        for item in render(outcome, "kubernetes").objects
        for rule in item["spec"].get(direction, ())
        for entry in rule[peer]
        if "ipBlock" in entry
    }


@pytest.mark.parametrize("direction", ["egress", "ingress"])
def test_private_ranges_of_a_family_stay_closed_until_that_family_is_named(direction: str) -> None:
    def found(cluster: str | None) -> dict[str, list[str]]:
        outcome = values(OPEN, cluster=cluster, human_eval=True, backend="kubernetes")
        assert ("W20" in warned(outcome)) or cluster is not None
        return blocks(outcome, direction)

    assert "fc00::/7" in found(None)["::/0"] and "10.0.0.0/8" in found(None)["0.0.0.0/0"]
    assert "fc00::/7" in found(FOUR)["::/0"] and "10.0.0.0/8" not in found(FOUR)["0.0.0.0/0"]
    assert "fc00::/7" not in found(BOTH)["::/0"] and {"fd01::/64", "fd02::/64"} <= set(found(BOTH)["::/0"])


def test_the_warning_names_the_family_that_is_not_known() -> None:
    def said(cluster: str | None) -> str:
        outcome = values(OPEN, cluster=cluster, backend="kubernetes")
        return " ".join(item.message for item in outcome.report.warnings if "pod and node ranges" in item.message)

    assert "IPv4" in said(None) and "IPv6" in said(None)
    assert "IPv4" not in said(FOUR) and "IPv6" in said(FOUR)
    assert said(BOTH) == ""


@pytest.mark.parametrize("cluster", [None, "protected: {pods: [10.8.0.0/14]}", "protected: {vpc: [10.8.0.0/14]}"])
def test_a_private_network_is_refused_where_pods_and_nodes_are_not_known(cluster: str | None) -> None:
    """It could be theirs: plain NetworkPolicy matches pods by address."""
    outcome = listed("10.32.0.0/16", cluster=cluster, backend="kubernetes")
    assert codes(outcome) == ["R27"]
    [problem] = outcome.report.problems
    assert "10.32.0.0/16" in problem.message and "protected.pods" in problem.fix
    assert listed("10.32.0.0/16", cluster=FOUR, backend="kubernetes").ok
    assert codes(listed("fd12::/64", cluster=FOUR, backend="kubernetes")) == ["R27"]
    for backend in ("cilium", "gke-dpv2"):
        assert listed("10.32.0.0/16", cluster=cluster, backend=backend).ok


def test_a_network_around_private_ranges_leaves_them_out() -> None:
    outcome = listed("8.0.0.0/5", backend="kubernetes")
    assert outcome.ok and blocks(outcome, "egress") == {"8.0.0.0/5": ["10.0.0.0/8"]}
    assert blocks(listed("8.0.0.0/5", cluster=FOUR), "egress") == {"8.0.0.0/5": ["10.1.0.0/24", "10.8.0.0/14"]}


def test_many_ranges_are_not_compared_with_each_other_for_every_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """500 networks beside 10,000 protected ranges took 12 s to check and 30 s to render."""
    touched = 0
    plain_hash, plain_eq = Protected.__hash__, Protected.__eq__

    def counted_hash(self: Protected) -> int:
        nonlocal touched
        touched += 1
        return plain_hash(self)

    def counted_eq(self: Protected, other: object) -> bool:
        nonlocal touched
        touched += 1
        return plain_eq(self, other)

    ranges = ", ".join(f"10.{number}.{2 * other}.0/24" for number in range(10) for other in range(100))
    cluster = read_cluster(f"protected: {{vpc: [{ranges}]}}", "cluster.yaml")
    assert cluster.protected_ranges() is cluster.protected_ranges()
    monkeypatch.setattr(Protected, "__hash__", counted_hash)
    monkeypatch.setattr(Protected, "__eq__", counted_eq)
    listed = ", ".join(f"44.{number}.0.0/24" for number in range(100))
    outcome = values(f"allowCIDR: [{listed}, 10.0.0.0/8]", cluster=cluster)
    assert outcome.ok
    render(outcome, "cilium")
    assert touched < 1000
