"""A real API server takes the pods of the strict level and the probe's Job, and holds them to the restricted standard.

No kubelet runs them: their form and Kubernetes' own Pod Security admission are what is proven.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from network.check import Checked
from network.model import PodSpec
from network.probe import Targets, expected_checks
from network.probeplan import ProbePlan
from network.render.backend import render
from network.render.probejob import probe_job
from tests.support.apiserver import ApiServer
from tests.support.network_files import values

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
NAMESPACE = "restricted-sandboxes"
IMAGE = "registry.example/netprobe@sha256:" + "0" * 64
TASK = """
services:
  default: {image: x, securityContext: {runAsUser: 1000, runAsGroup: 1000, fsGroup: 2000, privileged: true}}
  web: {image: x, networkIsolated: true, securityContext: {capabilities: {add: [SYS_ADMIN]}}}
"""
STRICT = "isolation: {level: strict, runtime_class: gvisor, non_root: true, read_only_root: true}"


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        running.ensure_namespace(NAMESPACE, pod_security="restricted")
        gvisor = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "gvisor"}}
        reply = running.call("POST", "/apis/node.k8s.io/v1/runtimeclasses", {**gvisor, "handler": "runsc"})
        assert reply.status == 201, reply.message
        yield running


def strict() -> Checked:
    outcome = values(TASK, isolation=STRICT)
    assert outcome.ok
    return outcome


def pod(name: str, spec: PodSpec) -> dict[str, Any]:
    """The pod as a platform makes it of what `render --json` says of one service."""
    said = json.loads(json.dumps(spec.to_json()))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": said["labels"]},
        "spec": {
            "runtimeClassName": said["runtime_class"],
            "securityContext": said["security_context"]["pod"],
            "hostAliases": [{"ip": "10.0.0.9", "hostnames": said["hosts"]}] if said["hosts"] else [],
            "containers": [
                {"name": "main", "image": "x", "securityContext": said["security_context"]["container"]},
            ],
        },
    }


def test_strict_pods_pass_the_restricted_pod_security_standard(server: ApiServer) -> None:
    for name, spec in render(strict(), "cilium", namespace=NAMESPACE).pods.items():
        reply = server.validate(pod(name, spec))
        assert reply.accepted, reply.message


@pytest.mark.parametrize("part", ["pod", "container"])
def test_without_either_part_the_server_refuses_them(server: ApiServer, part: str) -> None:
    spec = render(strict(), "cilium", namespace=NAMESPACE).pods["default"]
    bare = copy.deepcopy(pod("default", spec))
    where = bare["spec"] if part == "pod" else bare["spec"]["containers"][0]
    where["securityContext"] = {}
    reply = server.validate(bare)
    assert not reply.accepted and "PodSecurity" in reply.message


def test_the_probes_job_is_accepted_and_restricted(server: ApiServer) -> None:
    outcome = strict()
    rendered = render(outcome, "cilium", namespace=NAMESPACE)
    for service in rendered.pods:
        checks = expected_checks(outcome.matrix, service, Targets())
        job = json.loads(
            json.dumps(probe_job(rendered, ProbePlan(tuple(checks), service, "cilium", "s", NAMESPACE), image=IMAGE))
        )
        reply = server.validate(job)
        assert reply.accepted, reply.message
        # Admission judges pods; of a Job it only warns, so the Job's pod is sent as one.
        template = job["spec"]["template"]
        meta = {**template["metadata"], "name": f"probe-{service}", "namespace": NAMESPACE}
        reply = server.validate({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]})
        assert reply.accepted, reply.message
