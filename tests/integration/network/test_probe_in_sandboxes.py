"""The probe inside real gVisor sandboxes: what the `docker` backend promises is what a sandbox reaches."""

from __future__ import annotations

import contextlib
import io
import json
import socket
import tarfile
from collections.abc import Iterator, Mapping
from typing import Any

import docker
import pytest

from network.check import Checked
from network.evaluate.matrix import evaluate
from network.model import matrix_json
from network.probe import Check, Targets, expected_checks
from network.probeplan import VARIABLE, ProbePlan
from network.proberesults import Results, judge, read_results
from network.render.backend import Refused, render
from tests.support.engines import RunningEngine, running_engine
from tests.support.gobuild import NETPROBE, built
from tests.support.network_files import compose

pytestmark = [pytest.mark.docker]
LONE = "services: {agent: {image: x, network_mode: none}}"
IMAGE = "gauntlet-netprobe:test"


@pytest.fixture(scope="module")
def engine() -> Iterator[RunningEngine]:
    with running_engine("current") as running:
        yield running


@pytest.fixture(scope="module")
def client(engine: RunningEngine) -> Iterator[docker.DockerClient]:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as tar:
        tar.add(built(NETPROBE), "netprobe")
    with contextlib.closing(engine.client()) as found:
        found.api.import_image_from_data(body.getvalue(), repository="gauntlet-netprobe", tag="test")
        yield found


@pytest.fixture
def host_listener() -> Iterator[tuple[str, int]]:
    """A listener of the host on an address that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        route.connect(("192.0.2.1", 9))  # sends nothing: asks the kernel for this host's own address
        address = str(route.getsockname()[0])
    with socket.socket() as listener:
        listener.bind((address, 0))
        listener.listen()
        yield address, int(listener.getsockname()[1])


def arguments(outcome: Checked) -> Mapping[str, Any]:
    """How the daemon starts the container, from what the docker backend rendered."""
    [item] = render(outcome, "docker", sandbox_id="sbx-1").objects
    spec = item["spec"]
    assert spec["publish"] == []
    return {"network_mode": spec["networkMode"], "runtime": spec["runtime"]}


def planned(checks: list[Check]) -> ProbePlan:
    return ProbePlan(tuple(checks), "agent", "docker", "sbx-1", timeout_ms=1500)


def probed(client: docker.DockerClient, plan: ProbePlan, **options: Any) -> Results:
    """Run the probe in a new container and read what it printed."""
    container = client.containers.create(
        IMAGE,
        ["/netprobe"],
        environment={VARIABLE: plan.text},
        user="1000:1000",
        cap_drop=["ALL"],
        security_opt=["no-new-privileges"],
        **options,
    )
    try:
        container.start()
        assert container.wait(timeout=60)["StatusCode"] == 0, container.logs()
        return read_results(container.logs(stderr=False))
    finally:
        container.remove(force=True)


#: Shows that the probe can find something at all: the sandbox's own loopback refuses the port.
CONTROL = Check("control", "tcp", "reachable", "the sandbox's own loopback", "127.0.0.1", 9)


@pytest.mark.parametrize("text", [LONE, "services: {agent: {image: x}}"])
def test_a_sandbox_reaches_what_its_matrix_says(
    client: docker.DockerClient, host_listener: tuple[str, int], text: str
) -> None:
    outcome = compose(text)
    targets = Targets(offline=True, strangers=(host_listener,), nodes=(host_listener[0],), api_server=("10.96.0.1",))
    checks = [*expected_checks(outcome.matrix, "agent", targets), CONTROL]
    assert all(check.expect == "closed" for check in checks[:-1])
    plan = planned(checks)
    results = probed(client, plan, **arguments(outcome))
    verdict = judge(plan, results)
    assert verdict.ok, json.dumps(verdict.to_json(), indent=1)
    rendered = render(outcome, "docker").to_json()
    assert [item.id for item in judge(planned(checks[1:]), results).mismatches] == ["plan", checks[0].id]
    assert evaluate(rendered)["services"] == matrix_json(outcome.matrix, provenance=False)


def test_the_runtime_itself_has_no_network_whatever_the_engine_attaches(
    client: docker.DockerClient, host_listener: tuple[str, int]
) -> None:
    checks = expected_checks(compose(LONE).matrix, "agent", Targets(offline=True, strangers=(host_listener,)))
    plan = planned([*checks, CONTROL])
    results = probed(client, plan, network_mode="host", runtime="gauntlet-runsc")
    assert judge(plan, results).ok, results


def test_a_sandbox_with_a_network_is_stopped_by_the_probe(
    client: docker.DockerClient, host_listener: tuple[str, int]
) -> None:
    address, port = host_listener
    checks = [
        Check("interfaces", "interfaces", "closed", "no interface"),
        Check("other-sandbox-0", "tcp", "closed", "a listener of the host", address, port),
        CONTROL,
    ]
    plan = planned(checks)
    verdict = judge(plan, probed(client, plan, network_mode="host", runtime="runc"))
    assert [item.id for item in verdict.mismatches] == ["interfaces", "other-sandbox-0"]


@pytest.mark.parametrize("text", ["{a: {network_mode: bridge}}", "{a: {image: x}, b: {image: y}}"])
def test_what_the_local_backend_cannot_enforce_never_starts(text: str) -> None:
    with pytest.raises(Refused, match="R27"):
        arguments(compose(f"services: {text}"))
