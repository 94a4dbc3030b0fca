"""A real Kubernetes API server with Cilium's CRDs accepts every rendered object, without a single warning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from network.model import Backend
from network.render.backend import Refused, baseline, render
from tests.support.apiserver import KINDS, POLICIES, ApiServer
from tests.support.network_files import checked
from tests.support.network_random import Case, cases

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

NAMESPACE = "gauntlet-sandboxes"


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        running.ensure_namespace(NAMESPACE)
        yield running


def test_every_rendered_object_is_accepted(server: ApiServer) -> None:
    seen: set[str] = set()

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
    @given(case=cases(), backend=st.sampled_from(["cilium", "gke-dpv2", "kubernetes"]))
    def accept(case: Case, backend: Backend) -> None:
        outcome = checked(case.text, kind=case.kind, cluster=case.cluster, human_eval=case.human_eval)
        assume(outcome.ok)
        try:
            objects = render(outcome, backend, namespace=NAMESPACE).objects
        except Refused:
            assume(False)
            raise
        for item in json.loads(json.dumps(objects)):
            reply = server.validate(item)
            assert reply.accepted, (item, reply.message)
            seen.add(item["kind"])

    accept()
    assert seen == POLICIES | {"Service"}


@pytest.mark.parametrize("backend", ["cilium", "gke-dpv2", "kubernetes"])
def test_the_baseline_alone_is_accepted(server: ApiServer, backend: Backend) -> None:
    objects = json.loads(json.dumps(baseline(backend, None, NAMESPACE).objects))
    assert objects
    for item in objects:
        reply = server.validate(item)
        assert reply.accepted, reply.message


def test_a_whole_sandbox_can_be_created_and_read_back_unchanged(server: ApiServer) -> None:
    """Nothing is pruned or defaulted into another meaning: what is stored is what was rendered."""
    outcome = checked(
        "allowDomains: [a.example, '*.b.example']\nallowCIDR: [203.0.113.0/24]\n"
        "services: {default: {image: x}, db: {image: x, ports: [{port: 5432, protocol: TCP}]}}",
        kind="values",
        human_eval=True,
    )
    assert outcome.ok
    for item in json.loads(json.dumps(render(outcome, "cilium", namespace=NAMESPACE).objects)):
        if item["kind"] == "Service":
            continue  # a Service is given defaults; it is no policy
        prefix, plural, namespaced = KINDS[item["kind"]]
        path = f"{prefix}/namespaces/{NAMESPACE}/{plural}" if namespaced else f"{prefix}/{plural}"
        created = server.call("POST", f"{path}?fieldValidation=Strict", item)
        assert created.accepted, created.message
        stored = server.call("GET", f"{path}/{item['metadata']['name']}").body
        assert stored["spec"] == item["spec"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"endpointSelector": {}, "egress": [{"toEntities": ["World"]}]}, "Unsupported value"),
        ({"endpointSelector": {}, "egres": [{"toEntities": ["world"]}]}, "unknown field"),
        ({"endpointSelector": {}, "egress": [{"toCIDR": ["10.0.0.0/99x"]}]}, "Invalid value"),
    ],
)
def test_the_server_refuses_what_it_must(server: ApiServer, spec: dict[str, Any], words: str) -> None:
    """Its acceptance above means something."""
    item = {
        "apiVersion": "cilium.io/v2",
        "kind": "CiliumNetworkPolicy",
        "metadata": {"name": "wrong", "namespace": NAMESPACE},
        "spec": spec,
    }
    reply = server.validate(item)
    assert not reply.accepted
    assert words in reply.message
