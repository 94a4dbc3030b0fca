"""The security context that the strict level puts on pods, and what of the task's own is kept in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.network import app
from network.check import Checked
from network.evaluate.matrix import evaluate
from network.model import matrix_json
from network.render.backend import render
from tests.support.network_files import codes, compose, values

BARE: dict[str, dict[str, Any]] = {
    "pod": {"seccompProfile": {"type": "RuntimeDefault"}},
    "container": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
STRICT = "isolation: {level: strict, runtime_class: gvisor}"
FORCED = "isolation: {level: strict, runtime_class: gvisor, non_root: true, read_only_root: true}"
PRIVILEGED = """
services:
  default:
    image: x
    securityContext:
      runAsUser: 1000
      runAsGroup: 1001
      fsGroup: 1002
      runAsNonRoot: true
      readOnlyRootFilesystem: true
      privileged: true
      allowPrivilegeEscalation: true
      capabilities: {add: [NET_ADMIN]}
      seccompProfile: {type: Unconfined}
  web: {image: x, networkIsolated: true}
"""


def contexts(outcome: Checked, backend: str = "cilium") -> dict[str, Any]:
    rendered = render(outcome, backend).to_json()  # type: ignore[arg-type]
    assert evaluate(rendered)["services"] == matrix_json(outcome.matrix, provenance=False)
    return {name: pod["security_context"] for name, pod in rendered["pods"].items()}


@pytest.mark.parametrize("backend", ["cilium", "gke-dpv2", "kubernetes"])
def test_strict_pods_have_no_privileges_and_keep_the_tasks_users(backend: str) -> None:
    found = contexts(values(PRIVILEGED, isolation=STRICT), backend)
    assert found == {
        "default": {
            "pod": {**BARE["pod"], "runAsUser": 1000, "runAsGroup": 1001, "fsGroup": 1002, "runAsNonRoot": True},
            "container": {**BARE["container"], "readOnlyRootFilesystem": True},
        },
        "web": BARE,
    }


def test_the_eval_set_forces_what_the_task_did_not_ask_for() -> None:
    found = contexts(compose("services: {a: {user: '1000:7'}, b: {user: 5, network_mode: none}}", isolation=FORCED))
    container = {**BARE["container"], "readOnlyRootFilesystem": True}
    assert found["default"] == {
        "pod": {**BARE["pod"], "runAsUser": 1000, "runAsGroup": 7, "runAsNonRoot": True}, "container": container,
    }  # fmt: skip
    assert found["b"] == {"pod": {**BARE["pod"], "runAsUser": 5, "runAsNonRoot": True}, "container": container}


def test_the_charts_implicit_service_is_hardened_too() -> None:
    assert contexts(values("services: {web: {image: x}}", isolation=STRICT)) == {"web": BARE, "default": BARE}


def test_below_strict_the_context_is_the_tasks_own_matter() -> None:
    assert contexts(values(PRIVILEGED)) == {"default": None, "web": None}


def test_local_sandboxes_have_the_daemons_own_profile() -> None:
    outcome = compose("services: {a: {runtime: gvisor}}", isolation=STRICT)
    assert contexts(outcome, "docker") == {"a": None}


@pytest.mark.parametrize(
    "context",
    ["{runAsUser: root}", "{runAsGroup: -1}", "{fsGroup: 2147483648}", "{runAsUser: true}", "{runAsNonRoot: 'yes'}",
     "{readOnlyRootFilesystem: 1}"],
)  # fmt: skip
def test_what_kubernetes_would_refuse_is_refused_at_once(context: str) -> None:
    assert codes(values(f"services: {{default: {{image: x, securityContext: {context}}}}}")) == ["R41"]
    assert codes(compose("services: {a: {user: '2147483648'}}")) == ["R41"]


def test_render_json_prints_it_beside_labels_and_hosts(tmp_path: Path) -> None:
    (tmp_path / "v.yaml").write_text("services: {default: {image: x}}")
    (tmp_path / "i.yaml").write_text(STRICT)
    words = ["render", str(tmp_path / "v.yaml"), "--kind", "values", "--backend", "cilium", "--json"]
    done = CliRunner().invoke(app, [*words, "--isolation", str(tmp_path / "i.yaml")])
    assert done.exit_code == 0
    pod = json.loads(done.stdout)["pods"]["default"]
    assert pod["security_context"] == BARE and {"labels", "hosts", "runtime_class"} < set(pod)
