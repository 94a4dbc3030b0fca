"""`gauntlet network probe`: what a probe must find, the Job that runs it, and the verdict on what it found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from cli.network import app
from network.probe import Targets
from network.probetargets import TargetsError, read_targets

IMAGE = "registry.example/netprobe@sha256:" + "0" * 64
TARGETS = """
api_server: [10.96.0.1]
nodes: [10.1.0.4]
strangers: [{address: 10.8.3.7, port: 8080}]
siblings: {db: {address: 10.8.0.9, ports: [5432, 80]}}
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "task.yaml").write_text(
        "services:\n  default: {runtimeClassName: gvisor}\n  db: {ports: [{port: 5432}]}\n", encoding="utf-8"
    )
    (tmp_path / "lone.yaml").write_text("services: {agent: {network_mode: none}}")
    (tmp_path / "targets.yaml").write_text(TARGETS)
    return tmp_path


def run(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["probe", *(str(argument) for argument in arguments)], input=stdin)


def printed(document: Mapping[str, Any], **changed: str) -> str:
    """What the probe would print of a sandbox that keeps its promises, but for some ids (with _ for -)."""
    outcomes = {name.replace("_", "-"): outcome for name, outcome in changed.items()}
    usual = {"reachable": "open", "closed": "blocked"}
    results = [
        {"id": check["id"], "outcome": outcomes.get(check["id"], usual[check["expect"]]), "detail": "as recorded"}
        for check in document["expected"]
    ]
    return json.dumps({"probe": "netprobe/2", "digest": document["plan"]["digest"], "results": results})


def test_the_matrix_of_a_backend_is_shown_with_the_plan_that_holds_no_expectation(files: Path) -> None:
    told = run(files / "task.yaml", "--backend", "cilium", "--targets", files / "targets.yaml", "--json")
    assert told.exit_code == 0
    document = json.loads(told.stdout)
    promised = {check["id"]: check["expect"] for check in document["expected"]}
    assert promised["sibling-db-5432"] == "reachable" and promised["sibling-db-80"] == "closed"
    assert promised["kubelet-0"] == promised["other-sandbox-0"] == promised["api-server-0"] == "closed"
    assert [check["id"] for check in document["plan"]["checks"]] == list(promised)
    assert "expect" not in json.dumps(document["plan"]) and document["job"] is None
    text = run(files / "task.yaml", "--backend", "cilium", "--targets", files / "targets.yaml").stdout
    assert "reachable  sibling-db-5432" in text and "closed     kubelet-0" in text


@pytest.mark.parametrize("backend", ["cilium", "gke-dpv2", "kubernetes"])
def test_the_job_carries_the_services_labels_and_the_plan(files: Path, backend: str) -> None:
    told = run(files / "task.yaml", "--backend", backend, "--service", "db", "--image", IMAGE, "--sandbox-id", "s1")
    assert told.exit_code == 0
    job = yaml.safe_load(told.stdout)
    pod = job["spec"]["template"]
    assert job["kind"] == "Job" and pod["metadata"]["labels"]["gauntlet.dev/service"] == "db"
    assert pod["metadata"]["labels"]["gauntlet.dev/sandbox-id"] == "s1"
    [container] = pod["spec"]["containers"]
    assert container["image"] == IMAGE
    assert json.loads(container["env"][0]["value"])["checks"]


def test_results_as_promised_let_the_sandbox_start(files: Path) -> None:
    words = (files / "task.yaml", "--backend", "cilium", "--targets", files / "targets.yaml")
    planned = json.loads(run(*words, "--json").stdout)
    (files / "results.json").write_text(printed(planned))
    told = run(*words, "--results", files / "results.json")
    assert told.exit_code == 0 and "checks as promised" in told.stdout
    assert json.loads(run(*words, "--results", files / "results.json", "--json").stdout) == {
        "service": "default",
        "ok": True,
        "mismatches": [],
    }


def test_each_mismatch_is_named_and_blocks(files: Path) -> None:
    words = (files / "task.yaml", "--backend", "cilium", "--targets", files / "targets.yaml")
    planned = json.loads(run(*words, "--json").stdout)
    (files / "results.json").write_text(
        printed(planned, metadata_v4="open", kubelet_0="refused", sibling_db_5432="blocked", quic_v4="error")
    )
    told = run(*words, "--results", files / "results.json", "--json")
    assert told.exit_code == 1
    found = {item["id"]: (item["expected"], item["observed"]) for item in json.loads(told.stdout)["mismatches"]}
    assert found == {
        "metadata-v4": ("closed", "open: as recorded"),
        "kubelet-0": ("closed", "refused: as recorded"),
        "sibling-db-5432": ("reachable", "blocked: as recorded"),
        "quic-v4": ("closed", "error: as recorded"),
    }
    text = run(*words, "--results", files / "results.json")
    assert text.exit_code == 1 and "metadata-v4: expected closed, observed open" in text.stdout
    assert "mismatches: 4; the sandbox must not start" in text.stdout


def test_results_of_another_plan_or_of_another_program_are_no_proof(files: Path) -> None:
    without = json.loads(run(files / "task.yaml", "--backend", "cilium", "--json").stdout)
    (files / "results.json").write_text(printed(without))
    words = (files / "task.yaml", "--backend", "cilium", "--targets", files / "targets.yaml")
    told = run(*words, "--results", files / "results.json")
    assert told.exit_code == 1 and "kubelet-0: expected closed, observed no result" in told.stdout
    for text in ("", "{}", "[]", "not json", '{"probe": "netprobe/0", "results": []}'):
        (files / "results.json").write_text(text)
        told = run(*words, "--results", files / "results.json")
        assert told.exit_code == 1 and "results.json" in told.stderr


@pytest.mark.parametrize(
    "changed",
    [
        ["--targets", "elsewhere.yaml"], ["--service", "db"], ["--sandbox-id", "s2"], ["--namespace", "other"],
        ["--backend", "kubernetes"],
    ],
)  # fmt: skip
def test_results_with_the_same_ids_of_another_target_service_or_sandbox_are_a_mismatch(
    files: Path, changed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    Path("task.yaml").write_text(
        "services: {default: {runtimeClassName: gvisor, networkIsolated: true}, db: {networkIsolated: true}}"
    )
    Path("targets.yaml").write_text("nodes: [10.1.0.4]")
    Path("elsewhere.yaml").write_text("nodes: [192.0.2.4]")
    words = ["task.yaml", "--backend", "cilium", "--targets", "targets.yaml"]
    Path("results.json").write_text(printed(json.loads(run(*words, "--json").stdout)))
    assert run(*words, "--results", "results.json").exit_code == 0
    told = run(*words, *changed, "--results", "results.json")
    assert told.exit_code == 1 and told.stdout.startswith("plan: expected results of plan ")
    assert "mismatches: 1;" in told.stdout


def test_more_targets_than_the_probe_takes_are_wrong_use(files: Path) -> None:
    nodes = [f"10.1.{number // 250}.{number % 250}" for number in range(600)]
    (files / "targets.yaml").write_text(f"nodes: {json.dumps(nodes)}")
    told = run(files / "task.yaml", "--backend", "cilium", "--targets", files / "targets.yaml", "--image", IMAGE)
    assert told.exit_code == 2 and told.stdout == ""
    assert "targets.yaml: the plan has 1" in told.stderr and "the probe takes 1 to 512" in told.stderr


def test_a_local_sandbox_has_no_interface_and_no_job(files: Path) -> None:
    told = run(files / "lone.yaml", "--backend", "docker", "--json")
    promised = {check["id"]: check["expect"] for check in json.loads(told.stdout)["expected"]}
    assert promised["interfaces"] == "closed" and set(promised.values()) == {"closed"}
    assert run(files / "lone.yaml", "--backend", "docker", "--image", IMAGE).exit_code == 2


def test_what_is_refused_is_not_probed(files: Path) -> None:
    told = run(files / "task.yaml", "--backend", "docker")
    assert told.exit_code == 1 and "R27" in told.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--service", "web"],
        ["--image", "registry.example/netprobe:latest"],
        ["--image", IMAGE, "--results", "targets.yaml"],
        ["--targets", "nowhere.yaml"],
        ["--sandbox-id", "-", "--image", IMAGE],
    ],
)
def test_wrong_use_is_told(files: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    told = run(files / "task.yaml", "--backend", "cilium", *words)
    assert told.exit_code == 2 and told.stderr.startswith("error: "), told.stderr


def test_targets_of_an_empty_mapping_are_the_usual_ones() -> None:
    assert read_targets("{}", "t.yaml", offline=False) == Targets()
    assert read_targets("{}", "t.yaml", offline=True) == Targets(offline=True)
    found = read_targets(TARGETS + "outside_v6: 2001:DB8::1", "t.yaml", offline=False)
    assert found.outside_v6 == "2001:db8::1" and found.strangers == (("10.8.3.7", 8080),)


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "nodes: 10.1.0.4", "nodes: [node-1]", "nodes: [10.1.0.0/24]", "outside_v6: 1.1.1.1",
        "node: [10.1.0.4]", "strangers: [10.8.3.7]", "strangers: [{address: 10.8.3.7, port: 0}]",
        "siblings: {db: {address: 10.8.0.9, ports: []}}",
        "outside_name: 'a b'", "gateway_ports: ['22']", "a: 1\na: 2",
    ],
)  # fmt: skip
def test_targets_of_another_form_name_the_file(text: str) -> None:
    with pytest.raises(TargetsError, match=r"t\.yaml"):
        read_targets(text, "t.yaml", offline=False)


def test_siblings_that_the_file_does_not_have_are_told(files: Path) -> None:
    (files / "targets.yaml").write_text("siblings: {cache: {address: 10.8.0.9, ports: [1]}}")
    told = run(files / "task.yaml", "--backend", "cilium", "--targets", files / "targets.yaml")
    assert told.exit_code == 2 and "cache" in told.stderr and "default, db" in told.stderr
