"""The probe's promises and its verdict, with recorded results of good and bad sandboxes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from network.probe import Check, Peer, Targets, expected_checks
from network.probeplan import MAX_BYTES, MAX_CHECKS, PlanError, ProbePlan
from network.proberesults import ProbeError, ProbeVerdict, Results, read_results
from network.proberesults import judge as judge_plan
from network.render.backend import render
from network.render.names import RenderError
from network.render.probejob import probe_job
from tests.support.network_files import compose, values

TARGETS = Targets(
    api_server=("10.96.0.1",),
    nodes=("10.1.0.4",),
    strangers=(("10.8.3.7", 8080),),
    siblings={"web": Peer("10.8.0.9", (80, 81))},
)
IMAGE = "registry.example/netprobe@sha256:" + "0" * 64


def planned(checks: Sequence[Check], service: str = "default") -> ProbePlan:
    return ProbePlan(tuple(checks), service, "cilium", "sbx_1", "evals", "policy")


def judge(checks: Sequence[Check], results: list[tuple[str, str, str]]) -> ProbeVerdict:
    """The verdict on results of the very plan."""
    plan = planned(checks)
    return judge_plan(plan, Results(plan.digest, tuple(results)))


def promised(checks: list[Check]) -> dict[str, str]:
    return {check.id: check.expect for check in checks}


def recorded(checks: list[Check], **overrides: str) -> list[tuple[str, str, str]]:
    """Results of a sandbox that keeps every promise, but for the overrides (id with _ for -)."""
    outcomes = {name.replace("_", "-"): outcome for name, outcome in overrides.items()}
    return [
        (check.id, outcomes.get(check.id, "open" if check.expect == "reachable" else "blocked"), "") for check in checks
    ]


def test_a_closed_sandbox_promises_nothing_outside() -> None:
    checks = expected_checks(compose("services: {default: {image: x}, web: {image: y}}").matrix, "default", TARGETS)
    found = promised(checks)
    assert found.pop("sibling-web-80") == "reachable" and found.pop("sibling-web-81") == "reachable"
    assert set(found.values()) == {"closed"}
    assert {
        "metadata-v4", "metadata-v6", "api-server-0", "node-0", "kubelet-0", "other-sandbox-0", "outside-v4",
        "outside-v6", "outside-dns", "doh-v4", "icmp-v4", "quic-v4", "resolve-outside", "gateway-22",
    } <= set(found)  # fmt: skip


def test_an_open_sandbox_still_never_reaches_infrastructure() -> None:
    outcome = compose("services: {default: {network_mode: bridge}, web: {network_mode: none}}")
    found = promised(expected_checks(outcome.matrix, "default", TARGETS))
    assert found["outside-v4"] == found["doh-v4"] == found["outside-dns"] == found["resolve-outside"] == "reachable"
    for never in ("metadata-v4", "metadata-v6", "api-server-0", "kubelet-0", "other-sandbox-0", "sibling-web-80"):
        assert found[never] == "closed"


def test_listed_networks_and_domains() -> None:
    outcome = values("allowDomains: [a.example, '*.b.example']\nallowCIDR: [1.1.1.0/24]")
    found = promised(expected_checks(outcome.matrix, "default", Targets()))
    assert found["outside-v4"] == "reachable" and found["outside-dns"] == "closed"
    assert found["resolve-a.example"] == "reachable" and found["resolve-outside"] == "closed"


def test_sibling_ports_are_promised_one_by_one() -> None:
    outcome = values("services: {default: {image: x}, web: {ports: [{port: 80, protocol: TCP}]}}")
    found = promised(expected_checks(outcome.matrix, "default", TARGETS))
    assert (found["sibling-web-80"], found["sibling-web-81"]) == ("reachable", "closed")


def test_kept_promises_let_the_sandbox_start() -> None:
    checks = expected_checks(compose("services: {default: {image: x}, web: {image: y}}").matrix, "default", TARGETS)
    assert judge(checks, recorded(checks)).ok
    assert judge(checks, recorded(checks, icmp_v4="unsupported", sibling_web_81="refused")).ok


@pytest.mark.parametrize("outcome", ["open", "refused", "error", "odd"])
@pytest.mark.parametrize("name", ["metadata_v4", "outside_v4", "api_server_0", "gateway_22", "other_sandbox_0"])
def test_one_broken_promise_blocks_the_start(name: str, outcome: str) -> None:
    checks = expected_checks(compose("services: {default: {image: x}, web: {image: y}}").matrix, "default", TARGETS)
    verdict = judge(checks, recorded(checks, **{name: outcome}))
    assert not verdict.ok
    [mismatch] = verdict.to_json()["mismatches"]
    assert mismatch["id"] == name.replace("_", "-") and mismatch["expected"] == "closed"
    assert mismatch["observed"].startswith(outcome)


@pytest.mark.parametrize("outcome", ["blocked", "unsupported", "error"])
def test_a_sibling_that_should_answer_and_does_not_blocks_the_start(outcome: str) -> None:
    checks = expected_checks(compose("services: {default: {image: x}, web: {image: y}}").matrix, "default", TARGETS)
    assert not judge(checks, recorded(checks, sibling_web_80=outcome)).ok


def test_missing_doubled_and_unknown_results_block_the_start() -> None:
    checks = expected_checks(compose("services: {a: {image: x}}").matrix, "a", Targets())
    results = recorded(checks)
    assert [item.observed for item in judge(checks, results[1:]).mismatches] == ["no result"]
    assert [item.observed for item in judge(checks, [*results, results[0]]).mismatches] == ["2 results"]
    assert [item.id for item in judge(checks, [*results, ("extra", "blocked", "")]).mismatches] == ["extra"]
    assert not judge(checks, []).ok


@given(st.lists(st.tuples(st.sampled_from(["outside-v4", "metadata-v4", "x"]), st.text(max_size=5), st.just(""))))
def test_nothing_but_a_full_set_of_kept_promises_passes(results: list[tuple[str, str, str]]) -> None:
    checks = [Check(name, "tcp", "closed", "") for name in ("outside-v4", "metadata-v4")]
    good = sorted(name for name, _, _ in results) == ["metadata-v4", "outside-v4"] and all(
        outcome == "blocked" for _, outcome, _ in results
    )
    assert judge(checks, results).ok == good


def test_the_plan_does_not_say_what_is_expected() -> None:
    checks = expected_checks(compose("services: {a: {image: x}}").matrix, "a", Targets(offline=True))
    plan = json.loads(replace(planned(checks), timeout_ms=500).text)
    assert plan["timeout_ms"] == 500 and len(plan["checks"]) == len(checks)
    assert set(plan["checks"][0]) == {"id", "kind", "address", "port", "name", "server_name"}
    assert len({check.id for check in checks}) == len(checks)


def test_every_part_of_a_plan_is_in_its_digest() -> None:
    plan = planned([Check("a", "tcp", "closed", "why", "192.0.2.1", 80)])
    [check] = plan.checks
    others = [
        replace(plan, service="web"), replace(plan, backend="kubernetes"), replace(plan, sandbox_id="sbx_2"),
        replace(plan, namespace="n"), replace(plan, policy="other"), replace(plan, timeout_ms=1),
        replace(plan, checks=(check, replace(check, id="b"))),
        *(
            replace(plan, checks=(replace(check, **changed),))
            for changed in (
                {"address": "192.0.2.2"}, {"port": 81}, {"id": "b"}, {"kind": "udp"}, {"expect": "reachable"},
                {"name": "x"}, {"server_name": "x"},
            )
        ),
    ]  # fmt: skip
    assert len({plan.digest, *(other.digest for other in others)}) == len(others) + 1
    assert replace(plan).digest == plan.digest == json.loads(plan.text)["digest"]


def test_results_of_another_plan_are_a_mismatch_though_every_id_is_the_same() -> None:
    matrix = compose("services: {default: {image: x}, web: {image: y}}").matrix
    plan = planned(expected_checks(matrix, "default", TARGETS))
    results = Results(plan.digest, tuple(recorded(list(plan.checks))))
    assert judge_plan(plan, results).ok
    elsewhere = planned(expected_checks(matrix, "default", replace(TARGETS, nodes=("192.0.2.9",))))
    for other in (elsewhere, replace(plan, service="web"), replace(plan, sandbox_id="sbx_2")):
        assert [check.id for check in other.checks] == [check.id for check in plan.checks]
        [mismatch] = judge_plan(other, results).mismatches
        assert mismatch.id == "plan" and plan.digest in mismatch.observed and other.digest in mismatch.expected
    [mismatch] = judge_plan(plan, replace(results, digest="")).mismatches
    assert mismatch.id == "plan" and mismatch.observed == "results that name no plan"


def test_a_probe_that_could_not_even_try_proves_nothing() -> None:
    checks = expected_checks(compose("services: {a: {network_mode: none}}").matrix, "a", Targets())
    found = {item.id for item in judge(checks, [(check.id, "unsupported", "") for check in checks]).mismatches}
    assert found == {check.id for check in checks if check.kind != "icmp" and ":" not in check.address}
    assert {"outside-v4", "metadata-v4", "resolve-outside"} <= found and "metadata-v6" not in found


def test_a_plan_that_the_probe_would_not_take_is_refused_here() -> None:
    check = Check("a", "tcp", "closed", "")
    assert planned([check] * MAX_CHECKS).text
    with pytest.raises(PlanError, match=f"{MAX_CHECKS + 1} checks, the probe takes 1 to {MAX_CHECKS}"):
        planned([check] * (MAX_CHECKS + 1))
    with pytest.raises(PlanError, match="0 checks"):
        planned([])
    with pytest.raises(PlanError, match=f"bytes, the probe takes {MAX_BYTES}"):
        planned([replace(check, name="x" * 300)] * MAX_CHECKS)
    source = (Path(__file__).parents[3] / "tools" / "netprobe" / "main.go").read_text()
    assert re.findall(r"maxChecks += (\d+)\n", source) == [str(MAX_CHECKS)]


def test_recorded_output_is_read() -> None:
    text = (
        '{"digest":"d","probe":"netprobe/2",'
        '"results":[{"id":"a","outcome":"blocked","detail":"no answer","elapsed_ms":2000.1}]}\n'
    )
    assert read_results(text) == Results("d", (("a", "blocked", "no answer"),))
    assert read_results(text.replace('"digest":"d",', "")).digest == ""


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "null", b"\xff", '{"probe":"netprobe/1","results":[]}', '{"probe":"netprobe/2","results":[1]}',
             '{"probe":"netprobe/2"}', "panic: x"],
)  # fmt: skip
def test_other_output_is_an_error(text: Any) -> None:
    with pytest.raises(ProbeError):
        read_results(text)


def test_the_job_stands_in_the_services_place() -> None:
    outcome = compose("services: {default: {runtime: gvisor}, web: {image: x}}")
    rendered = render(outcome, "cilium", sandbox_id="sbx_1", namespace="evals")
    checks = expected_checks(outcome.matrix, "default", TARGETS)
    job = probe_job(rendered, planned(checks), image=IMAGE)
    template = job["spec"]["template"]
    assert template["metadata"]["labels"] == dict(rendered.pods["default"].labels)
    assert template["spec"]["runtimeClassName"] == "gvisor"
    assert template["spec"]["automountServiceAccountToken"] is False
    [container] = template["spec"]["containers"]
    assert json.loads(container["env"][0]["value"]) == planned(checks).to_json()
    assert job["spec"]["backoffLimit"] == 0
    web = probe_job(rendered, planned(checks, "web"), image=IMAGE)
    assert "runtimeClassName" not in web["spec"]["template"]["spec"]


def test_the_job_refuses_unknown_services_and_images_by_tag() -> None:
    rendered = render(compose("services: {a: {image: x}}"), "cilium")
    checks = [Check("a", "tcp", "closed", "")]
    with pytest.raises(RenderError, match="known: a"):
        probe_job(rendered, planned(checks, "b"), image=IMAGE)
    with pytest.raises(RenderError, match="digest"):
        probe_job(rendered, planned(checks, "a"), image="netprobe:latest")
