"""Legal-looking files that would have meant something else than they say."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.network import app
from tests.support.network_files import checked, codes, compose, values, verdict, warned

STRICT = "isolation: {level: strict, runtime_class: gvisor}"


@pytest.mark.parametrize("mode", ["${M}", '"${M}"', "$M", "${M:-}", "${M:-null}", "${M:-~}", "${M:-no}", "${M:+none}"])
def test_a_mode_from_a_variable_is_never_taken_as_not_set(mode: str) -> None:
    """A misspelt variable that was to say `none` must not open the service to its siblings."""
    outcome = compose(f"services:\n  a:\n    network_mode: {mode}\n  b: {{image: x}}", env={})
    assert codes(outcome) == ["R1"]


def test_a_mode_from_a_variable_works_when_it_is_set() -> None:
    text = "services:\n  a: {network_mode: '${M}'}\n  b:\n    network_mode: ${N:-none}"
    outcome = compose(text, env={"M": "none"})
    assert verdict(outcome, "default") == ("none", "none", ()) and verdict(outcome, "b") == ("none", "none", ())


def test_a_second_merge_key_is_a_duplicate() -> None:
    merge = "x: &x {network_mode: bridge}\ny: &y {network_mode: none}\nservices:\n  a:\n    <<: *x\n    <<: *y\n"
    outcome = compose(merge)
    assert "R40" in codes(outcome)
    [problem] = [item for item in outcome.report.problems if item.code == "R40"]
    assert problem.line == 6 and "line 5" in problem.message
    listed = "networks: {n: }\nservices: {a: {<<: [{networks: [n]}, {image: x}]}}"
    assert compose(listed).ok


@pytest.mark.parametrize(
    "domains", ["[target.example]", "['*.example']", "['**.example']", "[a.example, target.example]"]
)
def test_an_alias_cannot_stand_in_for_an_allowed_domain(domains: str) -> None:
    text = (
        "services:\n  a: {networks: {n: {aliases: [target.example]}}}\n  b: {networks: [n]}\n"
        f"networks: {{n: {{internal: true}}, m: {{}}}}\nx-k8s: {{allow_domains: {domains}}}"
    )
    [problem] = compose(text).report.problems
    assert (problem.code, problem.service, problem.line) == ("R25", "a", 2)
    assert "target.example" in problem.message
    assert compose(text.replace("target.example]}}}", "other.test]}}}")).ok


def test_a_credential_from_a_variables_value_is_found_and_not_repeated() -> None:
    secret = "sk-ant-" + "x" * 40
    outcome = compose("services: {a: {environment: ['X=${SECRET}']}}", env={"SECRET": secret})
    assert codes(outcome) == ["R44"]
    assert secret not in str(outcome.to_json())
    url = compose("services: {a: {environment: {U: $W}}}", env={"W": "https://api.anthropic.com/v1"})
    assert codes(url) == ["R44"]


@pytest.mark.parametrize(
    ("text", "isolation", "kind"),
    [
        ("services: {default: {securityContext: {runAsNonRoot: true, runAsUser: 0}}}", STRICT, "values"),
        ("services: {default: {securityContext: {runAsUser: 0}}}", STRICT[:-1] + ", non_root: true}", "values"),
        ("services: {a: {user: '0:5'}}", STRICT[:-1] + ", non_root: true}", "compose"),
    ],
)
def test_a_root_user_that_may_not_be_root_is_told_before_the_kubelet_does(text: str, isolation: str, kind: str) -> None:
    outcome = checked(text, kind=kind, isolation=isolation)
    [problem] = outcome.report.problems
    assert problem.code == "R41" and "root" in problem.message and problem.service in ("default", "a")


def test_settings_files_without_content_are_named() -> None:
    for text in ("", "null", "# nothing\n"):
        assert "W21" in warned(compose("services: {a: {image: x}}", isolation=text))
    assert "W21" not in warned(compose("services: {a: {image: x}}", isolation="isolation: standard"))
    assert "W21" not in warned(values("services: {default: {image: x}}"))


@pytest.mark.parametrize(
    "words",
    [["check", "-", "--isolation", "-"], ["check", "-", "--cluster", "-"], ["explain", "-", "--diff", "-"],
     ["check", "{}", "--isolation", "-", "--cluster", "-"]],
)  # fmt: skip
def test_standard_input_is_read_once(tmp_path: Path, words: list[str]) -> None:
    """The second reader would find nothing, and nothing means the standard level."""
    file = tmp_path / "c.yaml"
    file.write_text("services: {a: {image: x}}")
    done = CliRunner().invoke(app, [word.format(file) for word in words], input="services: {a: {image: x}}")
    assert done.exit_code == 2
    assert "standard input" in done.stderr
