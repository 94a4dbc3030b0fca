"""Every row and code of the network rules has a test that names it: the ids are listed here, the tests collected.

A test is counted only if pytest would run it and it asserts something or calls a helper of its module.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from network.problems import REJECTIONS

HERE = Path(__file__).parent
PITFALLS = [f"P{number:02}" for number in range(1, 24)]
DECISIONS = [f"D{number:02}" for number in range(1, 14)]
CODES = [f"R{number:02}" for number in range(1, 45)]
VALUES_ROWS = {
    "nothing": "nothing_grants_siblings_only",
    "allowDomains: [a.b]": "exact_domain_is_checked_by_name_on_443_and_80",
    'allowDomains: ["*.b"]': "wildcard_is_one_label",
    'allowDomains: ["*"]': "star_is_the_whole_internet_rendered_as_world",
    "allowDomainsPorts": "extra_port_is_opened_by_address",
    "allowCIDR": "cidr_opens_addresses_and_leaves_dns_unchanged",
    "allowEntities: [world]": "world_opens_everything_outside",
    "allowEntities: [all]": "entity_all_is_refused",
    "allowEntities: [cluster, host, ...]": "infrastructure_entities_are_refused",
    "networks and services.x.networks": "networks_connect_members",
    "internal and driver in a values file": "network_settings_mean_nothing_and_say_so",
    "networkIsolated": "isolated_service_is_denied_and_its_networks_ignored",
    "services.x.networks without top-level networks": "undeclared_networks_are_refused_not_opened",
    "networkPolicy.enabled: false": "policy_cannot_be_turned_off",
    "additionalResources": "additional_resources_are_refused",
    "labels that collide": "colliding_labels_are_refused",
    "services.x.ports": "ports_limit_siblings_to_them_and_echo",
    "no services.default": "implicit_default_stands_beside_named_services",
    "an empty file": "empty_file_is_the_implicit_default_on_gvisor",
    "CLUSTER_DEFAULT": "cluster_default_counts_as_unset",
}


def _collected() -> dict[str, bool]:
    """Names of the room's test functions, and whether each checks anything."""
    found: dict[str, bool] = {}
    for path in sorted(HERE.rglob("test_*.py")):
        tree = ast.parse(path.read_text(), str(path))
        helpers = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                assert node.name not in found, f"two tests are called {node.name}"
                found[node.name] = any(_checks(inner, helpers - {node.name}) for inner in ast.walk(node))
    return found


def _checks(node: ast.AST, helpers: set[str]) -> bool:
    if isinstance(node, ast.Assert):
        return True
    if not isinstance(node, ast.Call):
        return False
    called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    return called == "raises" or called in helpers


TESTS = _collected()


@pytest.mark.parametrize("number", [*PITFALLS, *DECISIONS, *CODES])
def test_every_pitfall_row_and_code_has_a_named_test(number: str) -> None:
    named = [name for name in TESTS if re.match(rf"test_{number}_", name)]
    assert named, f"no test is called test_{number}_..."
    assert all(TESTS[name] for name in named), f"checks nothing: {[name for name in named if not TESTS[name]]}"


@pytest.mark.parametrize("row", VALUES_ROWS)
def test_every_row_of_the_values_table_has_a_named_test(row: str) -> None:
    assert TESTS.get(f"test_values_{VALUES_ROWS[row]}"), row


def test_the_lists_are_whole() -> None:
    assert {f"R{int(code[1:])}" for code in CODES} == set(REJECTIONS)
    numbered = {match[1] for name in TESTS if (match := re.match(r"test_([PDR]\d\d)_", name))}
    assert numbered == {*PITFALLS, *DECISIONS, *CODES}


def test_a_test_that_checks_nothing_does_not_count() -> None:
    empty, full = ast.parse("def test_a():\n  x = 1"), ast.parse("def test_b():\n  assert x")
    assert not any(_checks(node, set()) for node in ast.walk(empty))
    assert any(_checks(node, set()) for node in ast.walk(full))
