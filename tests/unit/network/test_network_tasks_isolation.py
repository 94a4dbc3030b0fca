"""Single tasks in an eval set's isolation file: they raise the level for the file under check, and nothing else."""

from __future__ import annotations

import pytest

from tests.support.network_files import checked, codes, compose, values

CLOSED = "services: {a: {runtime: gvisor}}"


def test_a_task_at_strict_makes_the_file_strict() -> None:
    """Which task a file belongs to is not said: the strictest one counts."""
    text = "allowDomains: [a.example]\nservices: {default: {image: x, runtimeClassName: gvisor}}"
    assert codes(values(text, isolation="tasks: {one: {isolation: standard}}")) == []
    for task in ("strict", "{level: strict}"):
        outcome = values(text, isolation=f"tasks: {{zero: , one: {{isolation: {task}}}, two: {{isolation: standard}}}}")
        assert codes(outcome) == ["R36"]
        assert outcome.isolation.place.path.startswith("tasks.one.isolation")
    assert codes(compose("services: {a: {image: x}}", isolation="tasks: {one: {isolation: strict}}")) == ["R37"]


@pytest.mark.parametrize(
    "isolation",
    [
        "tasks: {one: {isolation: strict, human_eval: true}}",
        "human_eval: true\ntasks: {one: {isolation: strict}}",
        "tasks: {one: {isolation: strict}, two: {human_eval: true}}",
        "isolation: strict\ntasks: {one: {human_eval: true}}",
    ],
)
def test_a_human_eval_beside_a_strict_task_is_refused(isolation: str) -> None:
    outcome = compose(CLOSED, isolation=isolation)
    assert codes(outcome) == ["R39"]
    assert outcome.decision is not None and outcome.decision.matrix["a"].outside_ingress == ()


@pytest.mark.parametrize(
    ("task", "path"),
    [
        ("{levle: strict}", "tasks.one.isolation.levle"),
        ("{level: strict, foo: 1}", "tasks.one.isolation.foo"),
        ("{level: strict, allow_domains: ['*']}", "tasks.one.isolation.allow_domains"),
        ("{level: strict, allow_cidr: [0.0.0.0/0]}", "tasks.one.isolation.allow_cidr"),
        ("{runtime_class: runc}", "tasks.one.isolation.runtime_class"),
        ("{level: lax}", "tasks.one.isolation.level"),
        ("[strict]", "tasks.one.isolation"),
        ("7", "tasks.one.isolation"),
    ],
)
def test_a_task_says_a_level_and_nothing_else(task: str, path: str) -> None:
    """Egress, runtime class and the rest are the eval set's own."""
    outcome = compose(CLOSED, isolation=f"isolation: strict\ntasks: {{one: {{isolation: {task}}}}}")
    [problem] = outcome.report.problems
    assert (problem.code, problem.path) == ("R43", path)
    assert problem.fix


def test_a_task_without_a_level_changes_nothing() -> None:
    for task in ("{}", "null", "{level: }"):
        assert checked(CLOSED, isolation=f"isolation: strict\ntasks: {{one: {{isolation: {task}}}}}").ok
    assert codes(compose(CLOSED, isolation="isolation: strict\ntasks: {one: {isolation: standard}}")) == ["R43"]
