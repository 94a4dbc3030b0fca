"""Rejections of the strict level, R30-R39, and of the isolation settings themselves, R43."""

from __future__ import annotations

import pytest

from tests.support.network_files import codes, compose, rejected, values, verdict, warned

STRICT = "isolation: {level: strict, runtime_class: gvisor}"
SCOPED = "isolation: {level: strict, runtime_class: gvisor, allow_domains: [t.example], allow_cidr: [198.51.100.0/24]}"


def test_strict_accepts_a_closed_task() -> None:
    outcome = compose("services: {default: {image: a}, db: {image: b}}", isolation=STRICT)
    assert verdict(outcome, "default") == ("none", "siblings", ("db",))
    assert outcome.matrix["db"].runtime_class == "gvisor"


@pytest.mark.parametrize("sandbox", ["{type: local}", "{type: }", "local", "", "false"])
def test_R30_no_sandbox(sandbox: str) -> None:
    outcome = compose("services: {a: {image: x}}", isolation=f"{STRICT}\nsandbox: {sandbox}")
    assert codes(outcome) == ["R30"]
    assert compose("services: {a: {image: x}}", isolation=f"sandbox: {sandbox}").ok


def test_R31_default_user() -> None:
    outcome = compose("services: {a: {image: x}}", isolation=f"{STRICT}\nsandbox: {{type: k8s, default_user: agent}}")
    assert codes(outcome) == ["R31"]


def test_R32_additional_resources() -> None:
    assert codes(values("additionalResources: [x]", isolation=STRICT)) == ["R32"]


def test_R33_init_containers() -> None:
    text = "services: {default: {initContainers: [{name: a, image: b}]}}"
    assert rejected(values(text, isolation=STRICT)) == [("R33", "default")]


@pytest.mark.parametrize("volume", ["{name: v, emptyDir: {}}", "./x:/y", "'v:/x:ro'"])
def test_R34_volume(volume: str) -> None:
    assert rejected(values(f"services: {{default: {{volumes: [{volume}]}}}}", isolation=STRICT)) == [("R34", "default")]
    assert rejected(compose(f"services: {{a: {{volumes: [{volume}]}}}}", isolation=STRICT)) == [("R34", "a")]


@pytest.mark.parametrize(
    "grant",
    [
        "allow_domains: ['*']", "allow_domains: ['**']", "allow_domains: ['*.com']", "allow_domains: ['*.co.uk']",
        "allow_domains: ['*evil.org']", "allow_cidr: [0.0.0.0/0]", "allow_cidr: ['::/0']",
        "allow_cidr: [0.0.0.0/1, 128.0.0.0/1]", "allow_cidr: ['2000::/3']",
        "allow_cidr: [16.0.0.0/5, 32.0.0.0/5]",
    ],
)  # fmt: skip
def test_R35_broad_grant_by_coverage(grant: str) -> None:
    isolation = f"isolation: {{level: strict, runtime_class: gvisor, {grant}}}"
    assert codes(compose("services: {a: {image: x}}", isolation=isolation)) == ["R35"]


def test_R35_spares_scoped_lists() -> None:
    isolation = (
        "isolation: {level: strict, runtime_class: gvisor, allow_domains: ['*.t.example'], allow_cidr: [10.0.0.0/8]}"
    )
    assert compose("services: {a: {image: x}}", isolation=isolation).ok


@pytest.mark.parametrize(
    "text",
    [
        "services: {a: {network_mode: bridge}}",
        "services: {a: {networks: [n]}}\nnetworks: {n: }",
        "services: {a: {image: x}}\nx-k8s: {allow_domains: [a.b]}",
        "services: {a: {image: x}}\nx-k8s: {allow_entities: [world]}",
    ],
)
def test_R36_task_asks_for_egress(text: str) -> None:
    assert codes(compose(text, isolation=STRICT)) == ["R36"]


def test_R36_lists_what_the_task_wanted() -> None:
    outcome = values("allowDomains: [a.b]\nallowCIDR: [198.51.100.0/24]", isolation=STRICT)
    assert codes(outcome) == ["R36"]
    assert "a.b" in outcome.report.problems[0].message and "198.51.100.0/24" in outcome.report.problems[0].message


def test_strict_replaces_the_tasks_egress_by_the_eval_sets() -> None:
    outcome = compose(
        "services: {a: {network_mode: bridge}}\nx-k8s: {allow_domains: [other.example]}", isolation=SCOPED
    )
    assert verdict(outcome, "a") == ("listed", "listed", ())
    assert outcome.matrix["a"].domains == ("t.example",)
    assert outcome.matrix["a"].cidrs == ("198.51.100.0/24",)
    assert "W18" in warned(outcome)


def test_R37_no_hardened_runtime() -> None:
    text = "services: {a: {image: x}, b: {image: y, runtime: runc}}"
    assert rejected(compose(text, isolation="isolation: strict")) == [("R37", "a"), ("R37", "b")]
    assert codes(compose(text, isolation="isolation: strict", cluster="runtime_classes: [runc]")) == ["R37"]


def test_R37_spares_installed_and_named_runtimes() -> None:
    text = "services: {a: {image: x}}"
    installed = compose(text, isolation="isolation: strict", cluster="runtime_classes: [runc, gvisor]")
    assert installed.matrix["a"].runtime_class == "gvisor"
    assert compose("services: {a: {runtime: gvisor}}", isolation="isolation: strict").ok
    named = compose(text, isolation="isolation: {level: strict, runtime_class: special}")
    assert named.ok and "W11" in warned(named)


GPU = "services: {a: {deploy: {resources: {reservations: {devices: [{driver: nvidia, capabilities: [gpu]}]}}}}}"


def test_R38_gpu_without_allow_gpu() -> None:
    assert rejected(compose(GPU, isolation=STRICT)) == [("R38", "a")]
    assert compose(GPU).ok
    assert compose(GPU, isolation="isolation: {level: strict, runtime_class: gvisor, allow_gpu: true}").ok
    text = "services: {default: {resources: {limits: {nvidia.com/gpu: 1}}}}"
    assert rejected(values(text, isolation=STRICT)) == [("R38", "default")]


def test_R39_human_eval_at_strict() -> None:
    text = "services: {a: {image: x}}"
    assert codes(compose(text, isolation=STRICT, human_eval=True)) == ["R39"]
    assert codes(compose(text, isolation=f"{STRICT}\nhuman_eval: true")) == ["R39"]
    assert codes(compose(text, isolation=f"{STRICT}\ntasks: {{t: {{human_eval: true}}}}")) == ["R39"]


def test_human_eval_below_strict_opens_2222_on_default_only() -> None:
    outcome = compose("services: {default: {image: x}, b: {image: y}}", isolation="human_eval: true")
    assert outcome.matrix["default"].outside_ingress == (2222,)
    assert outcome.matrix["b"].outside_ingress == ()
    assert "W22" in warned(outcome)


@pytest.mark.parametrize(
    "isolation",
    [
        "isolation: severe", "isolation: 3", "isolation: {level: Strict}", "isolation: {levl: strict}", "unknown: 1",
        "isolation: {allow_domains: [a.b]}", "isolation: {allow_cidr: [198.51.100.0/24]}",
        "isolation: {non_root: true}",
        "isolation: {level: standard, read_only_root: true}", "isolation: {level: strict, runtime_class: 7}",
        "isolation: {allow_gpu: 'yes'}", "sandbox: {user: x}", "human_eval: maybe", "[x]", "isolation: [strict]",
        "isolation: {level: strict, runtime_class: gvisor, allow_domains: a.b}",
    ],
)  # fmt: skip
def test_R43_isolation_settings(isolation: str) -> None:
    outcome = compose("services: {a: {runtime: gvisor}}", isolation=isolation)
    assert codes(outcome) == ["R43"]
    assert outcome.report.problems[0].file == "isolation.yaml"


def test_R43_level_lowered_by_a_task() -> None:
    outcome = compose("services: {a: {image: x}}", isolation=f"{STRICT}\ntasks: {{easy: {{isolation: standard}}}}")
    assert codes(outcome) == ["R43"]
    assert "easy" in outcome.report.problems[0].message
    own = compose("services: {a: {image: x}}", isolation=STRICT, task_isolation="isolation: {level: standard}")
    assert codes(own) == ["R43"]
    assert own.report.problems[0].file == "challenge.yaml"


def test_a_task_may_raise_the_level() -> None:
    text = "services: {a: {network_mode: bridge}}"
    assert codes(compose(text, isolation="isolation: standard", task_isolation=STRICT)) == ["R36"]
    assert compose(text, isolation="isolation: standard", task_isolation="isolation: {runtime_class: gvisor}").ok


def test_falsy_settings_are_fine_at_standard() -> None:
    isolation = (
        "isolation: {level: standard, allow_domains: [], non_root: false, runtime_class: gvisor, allow_gpu: true}"
    )
    assert compose("services: {a: {image: x}}", isolation=isolation).ok


def test_R44_stays_out_of_R43() -> None:
    assert codes(compose("services: {a: {image: x}}", isolation="api_key: sk")) == ["R44"]


def test_lists_of_the_isolation_settings_meet_the_same_rules() -> None:
    lists = "allow_domains: ['http://x', x.svc], allow_cidr: [1.1.1.1/8, 169.254.1.0/24]"
    isolation = f"isolation: {{level: strict, runtime_class: gvisor, {lists}}}"
    assert codes(compose("services: {a: {image: x}}", isolation=isolation)) == ["R14", "R15", "R16", "R17"]
