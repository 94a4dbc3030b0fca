"""Rejections R1-R13 and the other codes that a Compose file can meet (R29, R40, R41, R44)."""

from __future__ import annotations

import pytest

from tests.support.network_files import codes, compose, rejected, values, warned


def _message(outcome, code: str) -> str:  # type: ignore[no-untyped-def]
    return " ".join(f"{item.message} {item.fix}" for item in outcome.report.problems if item.code == code)


@pytest.mark.parametrize("mode", ["host", "'service:db'", "'container:x'", "''", "custom", "7", "[none]", "no", "NONE"])
def test_R01_network_mode_other_than_none_or_bridge(mode: str) -> None:
    outcome = compose(f"services:\n  web:\n    network_mode: {mode}\n")
    assert rejected(outcome) == [("R1", "web")]
    [problem] = outcome.report.problems
    assert (problem.name, problem.line, problem.path) == ("NET_MODE_UNSUPPORTED", 3, "services.web.network_mode")
    assert "bridge" in problem.fix and "none" in problem.fix


def test_R01_null_mode_counts_as_unset_and_warns() -> None:
    outcome = compose("services: {web: {network_mode: null}}")
    assert outcome.ok and "W21" in warned(outcome)


@pytest.mark.parametrize("networks", ["[n]", "{n: }", "[]", "{}", ""])
def test_R02_none_with_networks(networks: str) -> None:
    outcome = compose(f"services:\n  web:\n    network_mode: none\n    networks: {networks}\nnetworks: {{n: }}")
    assert rejected(outcome) == [("R2", "web")]
    assert outcome.report.problems[0].line == 4


def test_R03_internal_service_online() -> None:
    outcome = compose(
        """
        services:
          default: {network_mode: bridge, networks: [i]}
          db: {networks: [i, j]}
          web: {networks: [i, o]}
        networks: {i: {internal: true}, j: {internal: true}, o: }
        """
    )
    assert rejected(outcome) == [("R3", "db"), ("R3", "default")]
    assert "bridge on default" in _message(outcome, "R3") and "line 3" in _message(outcome, "R3")


@pytest.mark.parametrize("grant", ["allow_entities: [world]", "allow_domains: ['*']"])
def test_R03_internal_service_online_by_the_extension(grant: str) -> None:
    outcome = compose(f"services: {{db: {{networks: [i]}}}}\nnetworks: {{i: {{internal: true}}}}\nx-k8s: {{{grant}}}")
    assert rejected(outcome) == [("R3", "db")]


def test_R03_domain_list_beside_internal_networks_is_a_warning() -> None:
    outcome = compose(
        "services: {db: {networks: [i]}}\nnetworks: {i: {internal: true}}\nx-k8s: {allow_domains: [a.example]}"
    )
    assert outcome.ok and "W6" in warned(outcome)


def test_R04_bridge_split_lists_every_service_without_network() -> None:
    outcome = compose(
        """
        services:
          default: {network_mode: bridge}
          a: {image: x}
          b: {networks: []}
          vault: {network_mode: none}
        """
    )
    assert rejected(outcome) == [("R4", "a"), ("R4", "b")]


@pytest.mark.parametrize("driver", ["overlay", "host", "''", "5", "[bridge]"])
def test_R05_driver_other_than_bridge(driver: str) -> None:
    outcome = compose(f"services: {{a: {{networks: [n]}}}}\nnetworks:\n  n:\n    driver: {driver}\n")
    assert rejected(outcome) == [("R5", None)]
    assert outcome.report.problems[0].path == "networks.n.driver"


@pytest.mark.parametrize("key", ["external", "ipam", "name", "attachable", "enable_ipv6", "driver_opts", "labels"])
def test_R06_network_key(key: str) -> None:
    outcome = compose(f"services: {{a: {{networks: [n]}}}}\nnetworks: {{n: {{{key}: true}}}}")
    assert rejected(outcome) == [("R6", None)]
    assert key in _message(outcome, "R6")


def test_R07_undeclared_network() -> None:
    outcome = compose("services: {a: {networks: [ghost, n]}, b: {networks: [default]}}\nnetworks: {n: }")
    assert rejected(outcome) == [("R7", "a")]
    assert "ghost" in _message(outcome, "R7")
    assert codes(compose("services: {a: {networks: [ghost]}}")) == ["R7"]


@pytest.mark.parametrize(
    "networks",
    ["{n: {internal: 'false'}}", "{n: {internal: 1}}", "{n: [x]}", "{n: text}", "[n]", "{n: {internal: null}}"],
)
def test_R08_bad_network_value(networks: str) -> None:
    assert "R8" in codes(compose(f"services: {{a: {{image: x}}}}\nnetworks: {networks}"))


def test_R08_null_network_is_an_empty_one() -> None:
    assert compose("services: {a: {networks: {n: }}}\nnetworks: {n: }").ok


@pytest.mark.parametrize(
    "option", ["ipv4_address: 10.0.0.2", "ipv6_address: '::2'", "link_local_ips: []", "mac_address: x", "priority: 1"]
)
def test_R09_endpoint_options(option: str) -> None:
    outcome = compose(f"services: {{a: {{networks: {{n: {{{option}}}}}}}}}\nnetworks: {{n: }}")
    assert rejected(outcome) == [("R9", "a")]


def test_R09_aliases_are_honoured_as_host_names() -> None:
    outcome = compose("services: {a: {networks: {n: {aliases: [db, api.example]}}}}\nnetworks: {n: }")
    assert outcome.decision is not None and outcome.ok
    assert outcome.decision.names.hosts["a"] == ("a", "db", "api.example")


@pytest.mark.parametrize("ports", ["['80:80']", "[80]", "[]"])
def test_R10_ports_publish(ports: str) -> None:
    assert rejected(compose(f"services: {{a: {{ports: {ports}}}}}")) == [("R10", "a")]


@pytest.mark.parametrize(
    "key",
    ["depends_on", "links", "extra_hosts", "dns", "cap_add", "privileged", "sysctls", "devices", "tmpfs", "env_file",
     "extends", "profiles", "restart", "pid", "secrets"],
)  # fmt: skip
def test_R11_unmapped_service_key(key: str) -> None:
    outcome = compose(f"services: {{a: {{{key}: x}}}}")
    assert rejected(outcome) == [("R11", "a")]
    assert key in _message(outcome, "R11")


def test_R11_lists_all_keys_of_a_service_in_one_entry_and_names_the_nearest() -> None:
    outcome = compose("services: {a: {enviroment: {}, dns: x}}\nconfigs: {}\nx-other: 1")
    assert rejected(outcome) == [("R11", None), ("R11", "a")]
    assert "did you mean environment?" in _message(outcome, "R11")


def test_R11_reaches_into_deploy_and_healthcheck() -> None:
    assert codes(compose("services: {a: {deploy: {replicas: 2}}}")) == ["R11"]
    assert codes(compose("services: {a: {healthcheck: {test: [CMD, x], retry: 1}}}")) == ["R11"]


def test_R11_dropped_keys_are_no_problem() -> None:
    outcome = compose(
        """
        version: "3"
        secrets: {s: {file: x}}
        x-local: {a: 1}
        volumes: {v: , w: {}}
        services:
          a: {build: ., init: true, memswap_limit: 1g, x-local: 1, expose: [80], volumes: ["v:/data"]}
        """
    )
    assert outcome.ok, rejected(outcome)


def test_R12_both_spellings_of_the_extension() -> None:
    assert codes(compose("services: {a: {image: x}}\nx-k8s: {}\nx-inspect_k8s_sandbox: {}")) == ["R12"]


@pytest.mark.parametrize(
    "block",
    ["{allow_domains: a.b}", "{allow_domains: [1]}", "{allow_entities: {world: true}}", "{allow_cidr: []}", "[x]"],
)
def test_R13_extension_type_or_key(block: str) -> None:
    assert codes(compose(f"services: {{a: {{image: x}}}}\nx-k8s: {block}")) == ["R13"]


def test_R29_names_equal_after_normalisation() -> None:
    assert ("R29", "Web_1") in rejected(compose("services: {web-1: {image: x}, Web_1: {image: y}}"))
    networks = compose("services: {a: {networks: [n_1, N-1]}}\nnetworks: {n_1: , N-1: }")
    assert rejected(networks) == [("R29", None)]
    assert "n_1" in _message(networks, "R29") and "N-1" in _message(networks, "R29")


def test_R29_a_second_service_cannot_become_default() -> None:
    outcome = compose("services: {default: {image: x}, agent: {image: y, x-default: true}}")
    assert rejected(outcome) == [("R29", "default")]


def test_R29_an_alias_cannot_take_a_siblings_name() -> None:
    outcome = compose("services: {db: {networks: [n]}, evil: {networks: {n: {aliases: [db]}}}}\nnetworks: {n: }")
    assert rejected(outcome) == [("R29", "evil")]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("services: [", 2),
        ("a: 1\na: 2\n", 2),
        ("services:\n  a: {image: x}\n  a: {image: y}\n", 3),
        ("- a\n", 1),
        ("text", 1),
        ("", 1),
        ("a: *missing", 1),
        ("a: &x [*x]", 1),
        ("a: !!python/object:os.system x", 1),
        ("services: {}\n---\nservices: {}\n", 2),
        ("? [a]\n: b\n", 1),
        ("a: &m [1]\nb: {<<: *m}\n", 1),
        ("a: \x01", None),
    ],
)
def test_R40_yaml(text: str, line: int | None) -> None:
    outcome = compose(text)
    assert codes(outcome)[0] in ("R11", "R40")
    [problem] = [item for item in outcome.report.problems if item.code == "R40"]
    assert line is None or problem.line == line


def test_R40_bytes_that_are_no_utf8() -> None:
    from network.check import Source, check

    assert codes(check(Source(b"\xff\xfe\xff", "compose.yaml"))) == ["R40"]


def test_R40_alias_bomb_is_bounded() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "R40" in codes(compose("\n".join(lines)))


def test_R40_depth_and_size_are_bounded() -> None:
    assert codes(compose("[" * 5000)) == ["R40"]
    assert codes(compose("a: " + "{a: " * 100 + "1" + "}" * 100)) == ["R40"]
    assert codes(compose("#" * (1 << 20) + "#")) == ["R40"]


@pytest.mark.parametrize(
    "service",
    [
        "{hostname: other}", "{user: root}", "{user: '1000:agent'}", "{platform: windows/amd64}",
        "{healthcheck: {test: curl}}", "{healthcheck: {test: [curl]}}", "{healthcheck: {test: []}}",
        "{healthcheck: {}}",
        "{healthcheck: {test: [CMD, x], interval: 500ms}}", "{healthcheck: {test: [CMD, x], retries: many}}",
        "{volumes: ['./x:/y']}", "{volumes: ['v:/y:ro']}", "{volumes: [{type: bind}]}", "{environment: [BARE]}",
        "{environment: {A: }}", "{environment: text}", "{command: {a: b}}", "{security_opt: [apparmor:x]}",
        "{security_opt: ['seccomp:/etc/x']}", "{mem_limit: 10x}", "{cpus: many}", "{image: [a]}", "{x-default: 'yes'}",
        "{deploy: {resources: {limits: {memory: lots}}}}", "{deploy: []}", "null", "[]", "7",
        "{networks: {n: {aliases: ['*']}}}", "{networks: {n: {aliases: ['a b']}}}",
    ],
)  # fmt: skip
def test_R41_bad_value_of_a_known_key(service: str) -> None:
    outcome = compose(f"services: {{a: {service}}}\nnetworks: {{n: }}")
    assert rejected(outcome) == [("R41", "a")]


@pytest.mark.parametrize(
    "service",
    [
        "{hostname: a, user: 1000, platform: linux/arm64, command: run it, entrypoint: [sh, -c]}",
        "{healthcheck: {disable: true}}",
        "{healthcheck: {test: [NONE]}}",
        "{healthcheck: {test: [CMD-SHELL, x], interval: 1h2m3s, timeout: 5s, retries: 3, start_interval: 1s}}",
        "{environment: {A: 1, B: yes, C: ''}, security_opt: [no-new-privileges:true, seccomp:unconfined]}",
        "{environment: [A=1, 'B=']}",
        "{mem_limit: 512m, cpus: 0.5, deploy: {resources: {limits: {cpus: '1', memory: 1g}}}}",
        "{runtime: gvisor, working_dir: /x, command: }",
    ],
)
def test_R41_accepts_every_documented_form(service: str) -> None:
    outcome = compose(f"services: {{a: {service}}}")
    assert outcome.ok, [str(item) for item in outcome.report.problems]


@pytest.mark.parametrize("name", ["My_Svc", "-a", "a.b", "a" * 64, "'a b'", "ümlaut"])
def test_R41_service_name(name: str) -> None:
    assert codes(compose(f"services: {{{name}: {{image: x}}}}")) == ["R41"]


def test_R41_no_service_and_too_many() -> None:
    assert codes(compose("networks: {n: }")) == ["R41"]
    assert codes(compose("services: {}")) == ["R41"]
    assert codes(compose("services:\n" + "".join(f"  s{n}: {{image: x}}\n" for n in range(501)))) == ["R41"]


def test_R41_top_level_volume_with_settings_and_second_x_default() -> None:
    assert codes(compose("services: {a: {image: x}}\nvolumes: {v: {driver: nfs}}")) == ["R41"]
    two = compose("services: {a: {x-default: true}, b: {x-default: true}}")
    assert rejected(two) == [("R41", "b")]


@pytest.mark.parametrize(
    "text",
    [
        "services: {a: {environment: {OPENAI_API_KEY: x}}}",
        "services: {a: {environment: ['ANTHROPIC_API_KEY=x']}}",
        "services: {a: {environment: {KEY: '${OPENAI_API_KEY}'}}}",
        "services: {a: {environment: {ANTHROPIC_BASE_URL: 'http://gateway'}}}",
        "services: {a: {command: 'run --key sk-ant-REDACTED-0123456789abcdef'}}",
        "services: {a: {environment: {URL: 'https://api.openai.com/v1'}}}",
        "services: {a: {image: x}}\napi_key: x",
    ],
)
def test_R44_credentials_in_a_compose_file(text: str) -> None:
    outcome = compose(text, env={"OPENAI_API_KEY": "very-secret"})
    assert codes(outcome) == ["R44"]
    assert "very-secret" not in str(outcome.report.problems)


def test_R44_credentials_in_a_values_file_and_in_the_isolation_settings() -> None:
    text = "services: {default: {env: [{name: OPENAI_API_KEY, value: x}]}}"
    assert rejected(values(text)) == [("R44", "default")]
    outcome = values("services: {default: {image: x}}", isolation="isolation: {level: standard, api_key: x}")
    assert codes(outcome) == ["R44"]
    assert outcome.report.problems[0].file == "isolation.yaml"


def test_all_problems_are_collected_in_one_report() -> None:
    outcome = compose(
        """
        services:
          a: {network_mode: host, ports: ["80:80"], dns: 1.1.1.1}
          b: {network_mode: none, networks: [n]}
          c: {networks: [ghost]}
        networks: {n: {driver: overlay}}
        x-k8s: {allow_domains: ["http://x"], allow_entities: [World]}
        """
    )
    assert codes(outcome) == ["R1", "R2", "R5", "R7", "R10", "R11", "R14", "R18"]
    for problem in outcome.report.problems:
        assert problem.message and problem.fix and problem.line and problem.file == "compose.yaml"
    assert not outcome.matrix


def test_deploy_beside_the_short_forms_is_a_warning() -> None:
    outcome = compose("services: {a: {mem_limit: 1g, deploy: {resources: {limits: {memory: 2g}}}}}")
    assert outcome.ok and "W21" in warned(outcome)


def test_R44_names_with_prefixes_and_without_false_alarms() -> None:
    assert codes(compose("services: {a: {environment: {MY_APP_OPENAI_API_KEY: x}}}")) == ["R44"]
    assert compose("services: {a: {environment: {PORT: 1, DB_URL: x, TOKENIZER: y, MODEL: gpt}}}").ok
