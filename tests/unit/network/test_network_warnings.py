"""Warnings: legal files that are wider, or other, than their author may think."""

from __future__ import annotations

import pytest

from network.problems import WARNINGS
from tests.support.network_files import compose, values, warned


def test_a_quiet_file_has_no_warning() -> None:
    assert warned(compose("services: {default: {image: x, runtime: gvisor}}")) == set()


@pytest.mark.parametrize("grant", ["allowEntities: [world]", 'allowDomains: ["*"]', 'allowDomains: ["**"]'])
def test_the_whole_internet_is_always_named(grant: str) -> None:
    assert "W1" in warned(values(grant))


@pytest.mark.parametrize("domain", ["*.com", "*.co.uk", "**.org", "*evil.net", "*.x.*"])
def test_patterns_that_anybody_can_register(domain: str) -> None:
    outcome = values(f"allowDomains: ['{domain}']")
    assert "W7" in warned(outcome) or not outcome.ok


@pytest.mark.parametrize("domain", ["*.s3.amazonaws.com", "*.github.io", "**.workers.dev", "a*.web.app"])
def test_patterns_in_zones_that_anybody_can_write(domain: str) -> None:
    assert "W8" in warned(values(f"allowDomains: ['{domain}']"))


@pytest.mark.parametrize("domain", ["a.com", "*.target.example.com", "me.github.io"])
def test_scoped_names_pass_quietly(domain: str) -> None:
    assert not warned(values(f"allowDomains: ['{domain}']")) & {"W7", "W8"}


@pytest.mark.parametrize(
    ("cidrs", "broad"),
    [
        ("[0.0.0.0/0]", True),
        ("[0.0.0.0/1, 128.0.0.0/1]", True),
        ("[11.0.0.0/9, 11.128.0.0/9]", True),
        ("['2001::/16']", True),
        ("[11.0.0.0/9]", False),
        ("[198.51.100.0/24, '2001:db8::/48']", False),
    ],
)
def test_broad_networks_by_what_they_cover_together(cidrs: str, broad: bool) -> None:
    assert ("W9" in warned(values(f"allowCIDR: {cidrs}"))) is broad


def test_extra_ports_are_named_as_unchecked() -> None:
    assert "W19" in warned(values("allowDomains: [a.example]\nallowDomainsPorts: [{port: 22, protocol: TCP}]"))


def test_an_unset_variable_is_named() -> None:
    assert "W14" in warned(compose("services: {a: {image: '${TAG}'}}"))


def test_unknown_ranges_are_named_for_address_backends() -> None:
    text = "services: {a: {network_mode: bridge}}"
    assert "W20" in warned(compose(text, backend="kubernetes"))
    assert "W20" not in warned(compose(text, backend="cilium"))
    cluster = (
        "protected: {pods: [10.8.0.0/14, 'fd01::/64'], nodes: [10.1.0.0/24, 'fd02::/64'], control_plane: [10.2.0.0/28]}"
    )
    assert "W20" not in warned(compose(text, backend="kubernetes", cluster=cluster))


def test_a_token_in_the_sandbox_is_named() -> None:
    assert "W21" in warned(values("automountServiceAccountToken: true"))


def test_warnings_have_names_places_and_reasons() -> None:
    outcome = compose("services: {a: {network_mode: bridge}, b: {network_mode: bridge}}", human_eval=True)
    for warning in outcome.report.warnings:
        assert warning.name == WARNINGS[warning.code]
        assert warning.message and warning.file == "compose.yaml" and warning.line


def test_problems_for_people_carry_no_terminal_commands() -> None:
    outcome = compose('services: {"a\\e[2Jb\\n": {network_mode: host}}')
    text = "\n".join(str(problem) for problem in outcome.report.problems)
    assert "\x1b" not in text and "\\x1b[2Jb\\n" in text


def test_W6_names_what_the_eval_set_opens_to_internal_services_at_strict() -> None:
    text = """
        services: {a: {networks: [n]}, b: {networks: [n]}, c: {network_mode: none}}
        networks: {n: {internal: true}}
    """
    for grants in ("allow_domains: [target.example]", "allow_cidr: [198.51.100.0/24]"):
        outcome = compose(text, isolation=f"isolation: {{level: strict, runtime_class: gvisor, {grants}}}")
        assert outcome.ok
        found = [item for item in outcome.report.warnings if item.code == "W6"]
        assert [item.service for item in found] == ["a", "b"]
        assert all(grants.split("[")[1].rstrip("]") in item.message for item in found)


def test_W6_is_about_what_holds_and_not_about_what_was_replaced() -> None:
    text = """
        services: {a: {networks: [n]}, b: {networks: [n]}}
        networks: {n: {internal: true}}
        x-k8s: {allow_domains: [own.example]}
    """
    strict = "isolation: {level: strict, runtime_class: gvisor, allow_domains: [target.example]}"
    [first, _] = [item for item in compose(text, isolation=strict).report.warnings if item.code == "W6"]
    assert "target.example" in first.message and "own.example" not in first.message
    cidr = compose("services: {a: {networks: [n]}}\nnetworks: {n: {internal: true}}", isolation="isolation: standard")
    assert "W6" not in warned(cidr)
