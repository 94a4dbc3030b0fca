"""The Compose decision table, row by row, and the surprises around it."""

from __future__ import annotations

import pytest

from tests.support.network_files import compose, rejected, verdict, warned


def test_D01_mode_none_stays_denied_while_a_sibling_is_online() -> None:
    outcome = compose(
        """
        services:
          default: {image: agent, network_mode: bridge}
          scorer: {image: scorer, network_mode: none}
        """
    )
    assert verdict(outcome, "default") == ("all", "all", ())
    assert verdict(outcome, "scorer") == ("none", "none", ())
    assert outcome.matrix["scorer"].outside_ingress == ()


def test_D01_mode_none_on_default_keeps_port_2222_in_a_human_eval() -> None:
    outcome = compose("services: {default: {image: a, network_mode: none}, b: {image: b}}", human_eval=True)
    assert outcome.matrix["default"].outside_ingress == (2222,)
    assert verdict(outcome, "default") == ("none", "none", ())
    assert outcome.matrix["b"].outside_ingress == ()


def test_D02_nothing_specified_reaches_siblings_only() -> None:
    outcome = compose(
        """
        services:
          default: {image: a}
          db: {image: b}
          vault: {image: c, network_mode: none}
        """
    )
    assert verdict(outcome, "default") == ("none", "siblings", ("db",))
    assert verdict(outcome, "db") == ("none", "siblings", ("default",))
    assert verdict(outcome, "vault") == ("none", "none", ())


def test_D03_internal_networks_connect_members_only() -> None:
    outcome = compose(
        """
        services:
          default: {networks: [front]}
          web: {networks: [front, back]}
          db: {networks: [back]}
        networks: {front: {internal: true}, back: {internal: true, driver: bridge}}
        """
    )
    assert verdict(outcome, "default") == ("none", "siblings", ("web",))
    assert verdict(outcome, "web") == ("none", "siblings", ("db", "default"))
    assert verdict(outcome, "db") == ("none", "siblings", ("web",))


def test_D04_a_non_internal_network_among_several_grants_nothing() -> None:
    outcome = compose(
        """
        services:
          default: {networks: [open, closed]}
          db: {networks: [closed]}
        networks: {open: , closed: {internal: true}}
        """
    )
    assert verdict(outcome, "default") == ("none", "siblings", ("db",))
    assert "W17" in warned(outcome)


def test_D05_bridge_on_every_service_connects_and_opens_all() -> None:
    outcome = compose(
        """
        services:
          default: {network_mode: bridge}
          web: {network_mode: bridge}
          vault: {network_mode: none}
        """
    )
    assert verdict(outcome, "default") == ("all", "all", ("web",))
    assert verdict(outcome, "web") == ("all", "all", ("default",))
    assert verdict(outcome, "vault") == ("none", "none", ())


def test_D06_bridge_without_networks_is_unreachable_where_networks_exist() -> None:
    outcome = compose(
        """
        services:
          default: {network_mode: bridge}
          web: {networks: [n]}
          db: {networks: [n]}
        networks: {n: {}}
        """
    )
    assert verdict(outcome, "default") == ("all", "all", ())
    assert verdict(outcome, "web") == ("all", "all", ("db",))
    assert "W5" in warned(outcome)


def test_D07_bridge_with_networks_is_accepted_with_a_warning() -> None:
    outcome = compose(
        """
        services:
          default: {network_mode: bridge, networks: [n]}
          web: {networks: [n]}
        networks: {n: {}}
        """
    )
    assert verdict(outcome, "default") == ("all", "all", ("web",))
    assert "W4" in warned(outcome)


def test_D08_no_network_while_a_sibling_grants_is_online_and_unreachable() -> None:
    outcome = compose(
        """
        services:
          default: {image: a}
          web: {network_mode: bridge, networks: [n]}
        networks: {n: {}}
        """
    )
    assert verdict(outcome, "default") == ("all", "all", ())
    assert {"W5", "W16"} <= warned(outcome)


def test_D09_a_non_internal_member_goes_online_by_a_siblings_bridge() -> None:
    outcome = compose(
        """
        services:
          default: {networks: [n, i]}
          web: {network_mode: bridge, networks: [n]}
        networks: {n: {}, i: {internal: true}}
        """
    )
    assert verdict(outcome, "default") == ("all", "all", ("web",))


def test_D10_internal_only_service_in_an_online_sandbox_is_rejected() -> None:
    outcome = compose(
        """
        services:
          default: {network_mode: bridge}
          db: {networks: [i]}
        networks: {i: {internal: true}}
        """
    )
    assert rejected(outcome) == [("R3", "db")]


def test_D11_no_network_beside_a_bridge_without_declared_networks_is_rejected() -> None:
    outcome = compose("services: {default: {network_mode: bridge}, db: {image: b}}")
    assert rejected(outcome) == [("R4", "db")]


def test_D12_one_plain_network_joined_by_all_opens_all() -> None:
    outcome = compose(
        """
        services:
          default: {networks: [n]}
          web: {networks: {n: }}
        networks: {n: {driver: bridge}}
        """
    )
    assert verdict(outcome, "default") == ("all", "all", ("web",))
    assert verdict(outcome, "web") == ("all", "all", ("default",))
    assert {"W1", "W3"} <= warned(outcome)


def test_D12_a_none_service_takes_the_grant_from_everybody() -> None:
    outcome = compose(
        """
        services:
          default: {networks: [n]}
          vault: {network_mode: none}
        networks: {n: {}}
        """
    )
    assert verdict(outcome, "default") == ("none", "siblings", ())
    assert "W2" in warned(outcome)


@pytest.mark.parametrize("settings", ["{internal: true}", "{driver: overlay}"])
def test_D12_needs_a_plain_network(settings: str) -> None:
    outcome = compose(f"services: {{a: {{networks: [n]}}}}\nnetworks: {{n: {settings}}}")
    assert outcome.decision is not None
    assert outcome.decision.matrix["a"].internet == "none"


def test_D13_no_network_where_networks_exist_reaches_nobody() -> None:
    outcome = compose(
        """
        services:
          default: {image: a}
          web: {networks: [i]}
        networks: {i: {internal: true}}
        """
    )
    assert verdict(outcome, "default") == ("none", "siblings", ())
    assert verdict(outcome, "web") == ("none", "siblings", ())
    assert "W5" in warned(outcome)


def test_declared_default_network_is_joined_by_services_that_say_nothing() -> None:
    outcome = compose(
        """
        services:
          default: {image: a}
          web: {networks: [default]}
          other: {networks: [i]}
        networks: {default: , i: {internal: true}}
        """
    )
    assert verdict(outcome, "default") == ("none", "siblings", ("web",))
    assert verdict(outcome, "other") == ("none", "siblings", ())


def test_declared_default_network_alone_is_the_one_shared_network() -> None:
    outcome = compose("services: {default: {image: a}, b: {image: b}}\nnetworks: {default: }")
    assert verdict(outcome, "b") == ("all", "all", ("default",))


def test_declared_internal_default_network_keeps_everybody_offline() -> None:
    outcome = compose("services: {default: {image: a}, b: {image: b}}\nnetworks: {default: {internal: true}}")
    assert verdict(outcome, "b") == ("none", "siblings", ("default",))


@pytest.mark.parametrize("networks", ["[default]", "{default: }", "[]", "{}", ""])
def test_joining_the_implicit_default_alone_equals_no_networks(networks: str) -> None:
    outcome = compose(f"services:\n  default: {{networks: {networks}}}\n  b: {{image: b}}\n")
    assert verdict(outcome, "default") == ("none", "siblings", ("b",))
    split = compose(f"services:\n  default: {{networks: {networks}}}\n  b: {{network_mode: bridge}}\n")
    assert rejected(split) == [("R4", "default")]


def test_explicit_default_beside_declared_networks_connects_those_who_name_it() -> None:
    outcome = compose(
        """
        services:
          default: {networks: [default]}
          b: {networks: [default, i]}
          c: {networks: [i]}
        networks: {i: {internal: true}}
        """
    )
    assert verdict(outcome, "default") == ("none", "siblings", ("b",))
    assert verdict(outcome, "c") == ("none", "siblings", ("b",))


@pytest.mark.parametrize("key", ["x-k8s", "x-inspect_k8s_sandbox"])
def test_extension_grants_domains_to_every_connected_service(key: str) -> None:
    outcome = compose(
        f"""
        services:
          default: {{image: a}}
          vault: {{network_mode: none}}
        {key}: {{allow_domains: [Target.Example.COM., "*.cdn.example.com"]}}
        """
    )
    assert verdict(outcome, "default") == ("listed", "listed", ())
    assert outcome.matrix["default"].domains == ("*.cdn.example.com", "target.example.com")
    assert outcome.matrix["vault"].domains == ()


@pytest.mark.parametrize("grant", ["allow_entities: [world]", "allow_domains: ['*']"])
def test_extension_can_open_everything(grant: str) -> None:
    outcome = compose(f"services: {{a: {{image: a}}}}\nx-k8s: {{{grant}}}")
    assert verdict(outcome, "a") == ("all", "all", ())
    assert outcome.matrix["a"].domains == ()


def test_first_of_several_services_becomes_default() -> None:
    outcome = compose("services: {agent: {image: a}, db: {image: b}}", human_eval=True)
    assert list(outcome.matrix) == ["default", "db"]
    assert outcome.matrix["db"].reachable_from == ("default",)
    assert outcome.matrix["default"].outside_ingress == (2222,)
    assert "W13" in warned(outcome)


def test_x_default_wins_over_order() -> None:
    outcome = compose("services: {db: {image: b}, agent: {image: a, x-default: true}}", human_eval=True)
    assert list(outcome.matrix) == ["db", "default"]
    assert outcome.matrix["default"].outside_ingress == (2222,)


def test_a_lone_service_keeps_its_name_and_is_the_default_for_2222() -> None:
    outcome = compose("services: {agent: {image: a}}", human_eval=True)
    assert list(outcome.matrix) == ["agent"]
    assert outcome.matrix["agent"].outside_ingress == (2222,)


def test_agent_evals_never_get_port_2222() -> None:
    outcome = compose("services: {agent: {image: a}}")
    assert outcome.matrix["agent"].outside_ingress == ()


def test_both_names_of_a_renamed_service_are_published() -> None:
    outcome = compose("services: {agent: {image: a}, db: {image: b}}")
    assert outcome.decision is not None
    assert outcome.decision.names.hosts["default"] == ("default", "agent")


def test_provenance_names_the_granting_line() -> None:
    outcome = compose("services:\n  default:\n    network_mode: bridge\n  b:\n    network_mode: bridge\n")
    [internet, second, siblings] = outcome.matrix["b"].granted_by
    assert (internet.grant, internet.line, internet.path) == ("internet", 3, "services.default.network_mode")
    assert (second.service, second.line) == ("b", 5)
    assert (siblings.grant, siblings.line) == ("siblings", 4)
