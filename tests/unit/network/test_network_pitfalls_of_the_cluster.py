"""Pitfalls that no policy object can show by itself: no rendering leans on what they warn of, for any input."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings

from network.model import BACKENDS, Backend, matrix_json
from network.probe import Check
from network.probeplan import ProbePlan
from network.render.backend import Refused, baseline, render
from network.render.lint import lint
from network.render.probejob import probe_job
from tests.support.network_files import checked, codes, compose, values
from tests.support.network_random import Case, cases

RUNS = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
IMAGE = "probe@sha256:" + "0" * 64


def renderings(case: Case) -> Iterator[tuple[Backend, dict[str, Any]]]:
    """The document of every backend that takes the case."""
    outcome = checked(case.text, kind=case.kind, cluster=case.cluster, human_eval=case.human_eval)
    assume(outcome.ok)
    for backend in BACKENDS:
        try:
            rendered = render(outcome, backend)
        except Refused:
            continue
        document = json.loads(json.dumps(rendered.to_json()))
        if backend != "docker":
            plan = ProbePlan((Check("a", "tcp", "closed", ""),), next(iter(rendered.pods)), "cilium", "s", "n")
            job = probe_job(rendered, plan, image=IMAGE)
            document["objects"].append(json.loads(json.dumps(job)))
        yield backend, document


def mappings(value: Any) -> Iterator[dict[str, Any]]:
    """Every mapping anywhere in a document."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from mappings(inner)


@RUNS
@given(case=cases())
def test_P15_nothing_rendered_is_on_the_hosts_network(case: Case) -> None:
    """Pods on the host's network are `host` to the engine, and no endpoint policy selects them."""
    for _backend, document in renderings(case):
        for found in mappings(document):
            assert not found.keys() & {"hostNetwork", "hostPort", "hostPID", "hostIPC", "nodeSelector"}
            assert found.get("networkMode") in (None, "none")


@pytest.mark.parametrize("text", ["hostNetwork: true\nservices: {}", "services: {default: {hostNetwork: true}}"])
def test_P15_no_file_can_ask_for_the_hosts_network(text: str) -> None:
    assert codes(values(text)) == ["R42"]
    assert codes(compose("services: {a: {network_mode: host}}")) == ["R1"]


@RUNS
@given(case=cases())
def test_P18_no_verdict_needs_the_address_of_a_service_to_be_translated(case: Case) -> None:
    """Behind gVisor the socket hooks see no connection, so a cluster address may stay what it is.

    Peers are pods, entities, names and outside addresses only; services are headless; and siblings' names are
    published inside the pod, so that they hold even where the resolver's cluster address is not translated.
    """
    for _backend, document in renderings(case):
        for found in mappings(document["objects"]):
            assert not found.keys() & {"toServices", "clusterIPs", "externalIPs", "loadBalancerIP", "nodePort"}
        for item in document["objects"]:
            if item["kind"] == "Service":
                assert item["spec"].keys() == {"clusterIP", "publishNotReadyAddresses", "selector"}
                assert item["spec"]["clusterIP"] == "None"
        connected = [pod for pod in document["pods"].values() if pod["hosts"]]
        names = {name for name, pod in document["pods"].items() if pod["hosts"]}
        for pod in connected:
            assert names <= set(pod["hosts"])


def test_P18_lint_finds_a_service_with_a_cluster_address() -> None:
    outcome = compose("services: {a: {image: x}}")
    rendered = render(outcome, "cilium")
    objects = json.loads(json.dumps(rendered.to_json()))["objects"]
    assert lint(objects, rendered.pods) == []
    objects[-1]["spec"]["clusterIP"] = "10.96.0.10"
    assert any("not headless" in line for line in lint(objects, rendered.pods))


@RUNS
@given(one=cases(), two=cases())
def test_P20_another_policy_is_another_sandbox(one: Case, two: Case) -> None:
    """A tightened policy leaves established connections alone, so none is ever changed under a running sandbox:

    files of different verdicts have different digests, by which sandboxes are told apart.
    """
    outcomes = [checked(case.text, kind=case.kind, cluster=case.cluster, human_eval=case.human_eval)
                for case in (one, two)]  # fmt: skip
    assume(all(outcome.ok for outcome in outcomes))
    verdicts = [matrix_json(outcome.matrix, provenance=False) for outcome in outcomes]
    if verdicts[0] != verdicts[1]:
        assert outcomes[0].digest != outcomes[1].digest


def test_P20_the_objects_of_two_sandboxes_share_none_but_the_baseline() -> None:
    """So that a sandbox with another policy comes up beside the running one instead of changing it."""
    for backend in ("cilium", "gke-dpv2", "kubernetes"):
        outcome = compose("services: {a: {image: x}, b: {network_mode: none}}")
        standing = {_key(item) for item in baseline(backend).objects}
        own = [{_key(item) for item in render(outcome, backend, sandbox_id=name).objects} - standing
               for name in ("one", "two", "one-two")]  # fmt: skip
        assert all(own)
        for left, right in itertools.combinations(own, 2):
            assert not left & right


def _key(item: Any) -> tuple[str, str]:
    return item["kind"], item["metadata"]["name"]
