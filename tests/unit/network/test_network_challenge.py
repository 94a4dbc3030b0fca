"""What a challenge may ask for, and the identity of the policy it gets."""

from __future__ import annotations

import json

import pytest

from network.challenge import check_challenge, identity, record
from network.check import Source
from tests.support.network_files import codes, compose, values


def test_no_network_file_means_no_network() -> None:
    outcome = check_challenge(None)
    assert outcome.ok
    assert outcome.matrix["default"].to_json(provenance=False) == {
        "internet": "none", "domains": [], "cidrs": [], "dns": "none", "reachable_from": [], "ports": None,
        "outside_ingress": [], "runtime_class": "gvisor",
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "services: {a: {network_mode: bridge}}",
        "services: {a: {image: x}, b: {image: y}}",
        "services: {a: {networks: [n]}}\nnetworks: {n: }",
        "allowDomains: [a.b]\nservices: {default: {image: x}}",
        "allowCIDR: [198.51.100.0/24]\nservices: {default: {image: x}}",
        "services: {web: {ports: [{port: 80, protocol: TCP}]}}",
    ],
)
def test_what_a_lone_sandbox_cannot_enforce_is_refused_at_submission(text: str) -> None:
    assert codes(check_challenge(Source(text, "challenge/network.yaml"))) == ["R27"]


def test_a_lone_closed_service_is_accepted_at_every_level() -> None:
    source = Source("services: {agent: {image: x}}", "network.yaml")
    for isolation in (None, "standard", "strict", {"level": "strict", "runtime_class": "gvisor"}):
        assert check_challenge(source, isolation).ok
    assert codes(check_challenge(source, {"level": "paranoid"})) == ["R43"]
    assert codes(check_challenge(source, "standard", eval_set=Source("isolation: strict", "i.yaml"))) == ["R43"]


def test_the_servers_environment_stays_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODE", "none")
    outcome = check_challenge(Source("services: {a: {network_mode: '${MODE}'}}", "network.yaml"))
    assert codes(outcome) == ["R1"]


def test_the_record_is_plain_json() -> None:
    found = record(check_challenge(None))
    assert set(found) == {"digest", "services", "warnings"} and found["digest"].startswith("sha256:")
    json.dumps(found)


def test_problems_of_isolation_name_the_line_in_the_challenges_own_description() -> None:
    text = "id: x\ntitle: X\nisolation:\n  level: strict\n  allow_gpus: true\nnetwork: compose.yaml\n"
    outcome = check_challenge(None, Source(text, "challenge.yaml", only="isolation"))
    [problem] = outcome.report.problems
    assert (problem.code, problem.file, problem.line, problem.path) == (
        "R43", "challenge.yaml", 5, "isolation.allow_gpus",
    )  # fmt: skip
    assert check_challenge(None, Source("id: x\n", "challenge.yaml", only="isolation")).ok


def test_an_egress_of_strict_isolation_and_a_human_eval_cannot_be_enforced() -> None:
    grant = Source("isolation: {level: strict, allow_domains: [a.example]}", "network/isolation.yaml")
    assert codes(check_challenge(Source("services: {a: {image: x}}", "network.yaml"), grant)) == ["R27"]
    assert codes(check_challenge(None, grant)) == ["R27"], "a grant is not passed over because there is no file"
    assert codes(check_challenge(None, Source("human_eval: true", "network/isolation.yaml"))) == ["R27"]


def test_every_closed_policy_is_the_same_sandbox_whatever_its_service_is_called() -> None:
    named = check_challenge(Source("services: {agent: {image: x}}", "network.yaml"))
    gvisor = check_challenge(Source("services: {box: {runtime: gvisor}}", "network.yaml"), "strict")
    assert identity(named) == identity(gvisor) == identity(check_challenge(None)) == ""
    assert named.digest != check_challenge(None).digest
    assert identity(compose("services: {a: {network_mode: bridge}}")).startswith("sha256:")
    assert identity(compose("services: {a: {image: x}, b: {image: y}}")).startswith("sha256:")
    with pytest.raises(ValueError, match="no policy"):
        identity(check_challenge(Source("services: {a: {network_mode: bridge}}", "network.yaml")))


def test_the_digest_is_of_the_policy_not_of_the_text() -> None:
    one = compose("services:\n  default: {image: x}\n  web: {image: y}\n")
    same = compose("# other words\nservices: {default: {image: z}, web: {image: y}}")
    assert one.digest == same.digest
    other = compose("services: {default: {image: x}, web: {network_mode: none}}")
    assert one.digest != other.digest
    ports = values("allowDomains: [a.b]\nallowDomainsPorts: [{port: 22}]")
    assert ports.digest != values("allowDomains: [a.b]").digest
