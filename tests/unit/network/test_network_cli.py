"""The command line: exit codes, the JSON contract, and nothing but JSON on stdout."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from cli.network import app

GOOD = "services:\n  default:\n    image: a\n    network_mode: bridge\n  vault: {network_mode: none}\n"
BAD = "services:\n  web:\n    network_mode: host\n"
SERVICE_KEYS = {
    "internet", "domains", "cidrs", "dns", "reachable_from", "ports", "outside_ingress", "runtime_class", "granted_by",
}  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "compose.yaml").write_text(GOOD)
    (tmp_path / "bad.yaml").write_text(BAD)
    (tmp_path / "values.yaml").write_text("allowDomains: [a.example]\nservices: {default: {image: x}}\n")
    return tmp_path


def run(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def document(result: Result) -> Any:
    return json.loads(result.stdout)


def test_check_accepts_and_prints_the_contract(files: Path) -> None:
    result = run("check", files / "compose.yaml", "--json")
    assert result.exit_code == 0
    found = document(result)
    assert set(found) == {"ok", "problems", "warnings", "services"}
    assert found["ok"] is True and found["problems"] == []
    assert {"W1"} <= {warning["code"] for warning in found["warnings"]}
    assert set(found["services"]["default"]) == SERVICE_KEYS
    assert found["services"]["default"]["internet"] == "all"
    [grant] = found["services"]["default"]["granted_by"]
    assert grant["grant"] == "internet" and grant["line"] == 4 and grant["path"] == "services.default.network_mode"
    assert found["services"]["vault"]["ports"] is None


def test_check_rejects_with_code_name_place_and_fix(files: Path) -> None:
    result = run("check", files / "bad.yaml", "--json")
    assert result.exit_code == 1
    found = document(result)
    assert found["ok"] is False and found["services"] == {}
    [problem] = found["problems"]
    assert problem["code"] == "R1" and problem["name"] == "NET_MODE_UNSUPPORTED"
    assert (problem["service"], problem["path"], problem["line"]) == ("web", "services.web.network_mode", 3)
    assert problem["message"] and problem["fix"] and problem["file"].endswith("bad.yaml")


def test_check_for_people_names_file_line_and_fix(files: Path) -> None:
    result = run("check", files / "bad.yaml")
    assert result.exit_code == 1
    assert "bad.yaml:3: R1 NET_MODE_UNSUPPORTED" in result.stdout and "fix:" in result.stdout


def test_ports_and_extra_options(files: Path) -> None:
    text = "services: {default: {image: x}, web: {ports: [{port: 80, protocol: TCP}]}}"
    (files / "v.yaml").write_text(text)
    found = document(run("check", files / "v.yaml", "--kind", "values", "--human-eval", "--json"))
    assert found["services"]["web"]["ports"] == [{"port": 80, "protocol": "TCP"}]
    assert found["services"]["default"]["outside_ingress"] == [2222]
    (files / "i.yaml").write_text("isolation: {level: strict, runtime_class: gvisor, allow_cidr: [198.51.100.0/24]}")
    found = document(run("check", files / "v.yaml", "--isolation", files / "i.yaml", "--json"))
    assert found["services"]["web"]["cidrs"] == ["198.51.100.0/24"]
    (files / "c.yaml").write_text("{backend: gke-dpv2}")
    result = run("check", files / "values.yaml", "--cluster", files / "c.yaml", "--json")
    assert [problem["code"] for problem in document(result)["problems"]] == ["R27"]


def test_variables_come_from_the_environment(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (files / "e.yaml").write_text("services: {a: {network_mode: '${SAMPLE_METADATA_MODE:-none}'}}")
    assert document(run("check", files / "e.yaml", "--json"))["services"]["a"]["dns"] == "none"
    monkeypatch.setenv("SAMPLE_METADATA_MODE", "bridge")
    assert document(run("check", files / "e.yaml", "--json"))["services"]["a"]["internet"] == "all"
    monkeypatch.setenv("SAMPLE_METADATA_MODE", "none\n    image: injected")
    assert run("check", files / "e.yaml").exit_code == 1


def test_explain_prints_a_table_with_provenance(files: Path) -> None:
    result = run("explain", files / "compose.yaml")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert any(line.startswith("service") and "reachable from" in line for line in lines)
    assert any(line.startswith("default") and "EVERYTHING" in line for line in lines)
    assert any(line.startswith("vault") and "nobody" in line for line in lines)
    assert "compose.yaml:4 (services.default.network_mode)" in result.stdout


def test_explain_compares_with_an_approved_explanation(files: Path) -> None:
    approved = files / "approved.json"
    approved.write_text(run("explain", files / "compose.yaml", "--json").stdout)
    same = run("explain", files / "compose.yaml", "--diff", approved, "--json")
    assert same.exit_code == 0 and document(same)["diff"] == []
    (files / "compose.yaml").write_text("# a comment moves the lines\n" + GOOD)
    assert run("explain", files / "compose.yaml", "--diff", approved).exit_code == 0
    (files / "compose.yaml").write_text(GOOD.replace("network_mode: none", "image: y, network_mode: bridge"))
    changed = run("explain", files / "compose.yaml", "--diff", approved, "--json")
    assert changed.exit_code == 1
    fields = {(change["service"], change["field"]) for change in document(changed)["diff"]}
    assert {("vault", "internet"), ("vault", "dns"), ("default", "reachable_from")} <= fields
    assert "vault internet: none -> all" in run("explain", files / "compose.yaml", "--diff", approved).stdout


def test_explain_shows_changed_extra_ports_as_a_difference(files: Path) -> None:
    approved = files / "approved.json"
    approved.write_text(run("explain", files / "values.yaml", "--json").stdout)
    with (files / "values.yaml").open("a") as handle:
        handle.write("allowDomainsPorts: [{port: 22}]\n")
    changed = run("explain", files / "values.yaml", "--diff", approved, "--json")
    assert [change["field"] for change in document(changed)["diff"]] == ["granted_by"]


def test_explain_refuses_an_approval_that_is_none(files: Path) -> None:
    for text in ("[]", "{", "{}"):
        (files / "approved.json").write_text(text)
        assert run("explain", files / "compose.yaml", "--diff", files / "approved.json").exit_code == 2


@pytest.mark.parametrize("backend", ["cilium", "gke-dpv2", "kubernetes"])
def test_render_prints_yaml_documents_and_the_same_as_json(files: Path, backend: str) -> None:
    arguments = ("render", files / "compose.yaml", "--backend", backend, "--sandbox-id", "sbx_1", "--namespace", "ns")
    text = run(*arguments)
    assert text.exit_code == 0 and "&id" not in text.stdout
    found = document(run(*arguments, "--json"))
    assert list(yaml.safe_load_all(text.stdout)) == found["objects"]
    assert set(found) == {"objects", "pods"}
    pod = found["pods"]["default"]
    assert pod["labels"]["gauntlet.dev/sandbox-id"] == "sbx_1" and pod["hosts"] == ["default"]
    assert found["pods"]["vault"]["hosts"] == []
    assert {item["metadata"].get("namespace", "ns") for item in found["objects"]} == {"ns"}


def test_render_is_deterministic(files: Path) -> None:
    arguments = [sys.executable, "-m", "cli.network", "render", str(files / "values.yaml"), "--backend", "cilium"]
    outputs = {
        subprocess.run(arguments, capture_output=True, check=True, env={"PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_render_refuses_what_the_backend_cannot_do(files: Path) -> None:
    result = run("render", files / "values.yaml", "--backend", "kubernetes", "--json")
    assert result.exit_code == 1
    assert [problem["code"] for problem in document(result)["problems"]] == ["R27"]
    assert run("render", files / "bad.yaml", "--backend", "cilium").exit_code == 1


def test_render_prints_the_baseline_alone(files: Path) -> None:
    (files / "c.yaml").write_text("{backend: cilium, protected: {vpc: [10.0.0.0/20]}}")
    result = run("render", "--baseline-only", "--cluster", files / "c.yaml")
    [item] = yaml.safe_load_all(result.stdout)
    assert item["kind"] == "CiliumClusterwideNetworkPolicy"
    assert {"cidr": "10.0.0.0/20"} in item["spec"]["egressDeny"][1]["toCIDRSet"]
    selected = item["spec"]["endpointSelector"]["matchLabels"]
    assert set(selected) == {"gauntlet.dev/role", "k8s:io.kubernetes.pod.namespace"}
    full = run("render", files / "compose.yaml", "--cluster", files / "c.yaml", "--json")
    assert document(full)["objects"][0] == item


def test_wrong_use_exits_2(files: Path) -> None:
    assert run("check", files / "missing.yaml").exit_code == 2
    assert run("check", files / "compose.yaml", "--cluster", files / "bad.yaml").exit_code == 2
    assert run("check", files / "compose.yaml", "--kind", "helm").exit_code == 2
    assert run("render", files / "compose.yaml").exit_code == 2
    assert run("render", "--backend", "cilium").exit_code == 2
    assert run("render", files / "compose.yaml", "--backend", "cilium", "--sandbox-id", "a b").exit_code == 2
    assert run("render", files / "compose.yaml", "--backend", "cilium", "--namespace", "A").exit_code == 2
    assert run("nonsense").exit_code == 2


def test_standard_input_is_a_file(files: Path) -> None:
    assert document(run("check", "-", "--json", stdin=GOOD))["ok"] is True


def test_kind_is_detected_by_keys_then_by_the_name(files: Path) -> None:
    (files / "task.yaml").write_text("allowEntities: [world]")
    assert document(run("check", files / "task.yaml", "--json"))["services"]["default"]["internet"] == "all"
    (files / "values-x.yaml").write_text("services: {web: {image: x}}")
    assert set(document(run("check", files / "values-x.yaml", "--json"))["services"]) == {"web", "default"}
    (files / "x.yaml").write_text("services: {web: {image: x}}")
    assert set(document(run("check", files / "x.yaml", "--json"))["services"]) == {"web"}


def test_evaluate_reads_what_render_printed(files: Path) -> None:
    rendered = run("render", files / "compose.yaml", "--backend", "cilium", "--json").stdout
    result = run("evaluate", "-", "--json", stdin=rendered)
    assert result.exit_code == 0
    checked = document(run("check", files / "compose.yaml", "--json"))["services"]
    expected = {name: {key: service[key] for key in SERVICE_KEYS - {"granted_by"}} for name, service in checked.items()}
    assert document(result) == {"services": expected}
    assert yaml.safe_load(run("evaluate", "-", stdin=rendered).stdout) == {"services": expected}


def test_evaluate_refuses_other_documents() -> None:
    assert run("evaluate", "-", stdin="services: {}").exit_code == 2
    assert run("evaluate", "-", stdin="[]").exit_code == 2
    assert run("evaluate", "-", stdin='{"objects": [{"kind": "Odd"}], "pods": {}}').exit_code == 1


def test_an_endless_file_is_refused_before_memory_ends() -> None:
    """A child with little address space: what is no file of a sane size is not read to its end."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))"
    code = f"{limit}; from cli.network import app; app()"
    for words in (["check", "/dev/zero"], ["explain", "-"], ["check", "-", "--isolation", "/dev/zero"],
                  ["check", "-", "--cluster", "/dev/zero"], ["evaluate", "/dev/zero"]):  # fmt: skip
        with Path("/dev/zero").open("rb") as zeros:
            done = subprocess.run(
                [sys.executable, "-c", code, *words], stdin=zeros, capture_output=True, text=True, timeout=60
            )
        assert done.returncode in (1, 2), done.stderr[-2000:]
        assert "Traceback" not in done.stderr and "MemoryError" not in done.stderr
        assert "longer than" in done.stdout + done.stderr


@pytest.mark.parametrize("command", [["render"], ["probe", "--json"]])
def test_a_cluster_file_on_standard_input_is_read_once(files: Path, command: list[str]) -> None:
    text = "backend: cilium\nprotected: {vpc: [10.0.0.0/16], nodes: [10.1.0.0/24], pods: [10.8.0.0/14]}\n"
    (files / "cluster.yaml").write_text(text)
    named = run(*command, files / "values.yaml", "--kind", "values", "--cluster", files / "cluster.yaml")
    assert named.exit_code == 0, named.output
    given = run(*command, files / "values.yaml", "--kind", "values", "--cluster", "-", stdin=text)
    assert (given.exit_code, given.stdout) == (0, named.stdout), given.output
