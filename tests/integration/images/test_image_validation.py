"""The validation suite: a good image passes and is validated once; a bad one is named and kept out."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys

import docker
import pytest

from images import validate
from images.build import ensure_image
from images.stacks import ImageError
from images.trial import Place
from seccomp.generate import PROFILE
from tests.support.environment import REPOSITORY
from tests.support.mini_image import mini_image

pytestmark = [pytest.mark.docker, pytest.mark.slow]
RUNTIME = "gauntlet-runsc"
BAD = "gauntlet-sandbox:python311-badbadbad"


@pytest.fixture
def client():
    with contextlib.closing(docker.from_env(timeout=120)) as connected:
        yield connected


@pytest.fixture
def bad_image(client):
    """An image of the stack's name with a shell, but without supervisor, Python or anything else that is promised."""
    client.images.get(mini_image(client.api)).tag(*BAD.split(":"))
    yield BAD
    client.images.remove(BAD)


def command(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    run = [sys.executable, "-m", "cli.main", "image", "validate", *arguments]
    return subprocess.run(run, capture_output=True, timeout=280, check=False, cwd=REPOSITORY)


def test_the_stacks_image_passes_all_seven_points(client) -> None:
    done = command(ensure_image("python311", client).tag, "--json")
    report = json.loads(done.stdout)
    failed = [check for check in report["checks"] if not check["passed"]]
    assert (done.returncode, report["passed"], failed) == (0, True, []), done.stderr
    points = {"start", "runtimes", "databases", "test runners", "limits", "network", "hidden"}
    assert {check["point"] for check in report["checks"]} == points
    assert "what the probe reaches is what is promised" in {check["name"] for check in report["checks"]}


def test_an_image_that_lacks_what_its_stack_promises_is_kept_out(client, bad_image, tmp_path) -> None:
    tmp_path.chmod(0o700)
    for _ in range(2):  # a failure is not remembered as a success
        with pytest.raises(ImageError, match="does not pass validation: start/"):
            validate.ensure_valid(bad_image, client, runtime=RUNTIME, profile=PROFILE.read_text(), cache=tmp_path)
    done = command(bad_image)
    assert done.returncode == 1
    assert b"FAILED" in done.stdout


@pytest.mark.parametrize(
    ("runtime", "network", "reached"),
    [(RUNTIME, "none", []), (RUNTIME, "host", []), ("runc", "host", ["node-0", "kubelet-0", "interfaces"])],
)
def test_the_probe_names_what_a_sandbox_reaches_and_should_not(client, runtime, network, reached) -> None:
    """Also a control of the probe itself: the host's own network is seen where the runtime lets it through."""
    image = client.images.get(ensure_image("python311", client).tag).id
    with Place(client, image, runtime, PROFILE.read_text(), network).sandbox() as container:
        check = validate.probed(container)
    assert check.passed is not bool(reached)
    assert all(f"{name}: expected closed, observed" in check.detail for name in reached)


def test_an_image_is_validated_once_for_each_set_of_conditions(client, tmp_path, monkeypatch) -> None:
    tmp_path.chmod(0o700)
    tag, runs = ensure_image("python311", client).tag, []

    def passes(tag: str, client: object, *, runtime: str, profile: str) -> validate.Report:
        runs.append(profile)
        return validate.Report(tag, "sha256:x", (validate.Check("start", "x", True, "", 0.0),))

    monkeypatch.setattr(validate, "validate", passes)
    for profile in ("{}", "{}", '{"other": 1}', "{}"):
        validate.ensure_valid(tag, client, runtime=RUNTIME, profile=profile, cache=tmp_path)
    assert runs == ["{}", '{"other": 1}']


def test_a_tag_that_is_not_there_and_a_runtime_that_is_not_registered_are_said(client) -> None:
    for tag, words in (("gauntlet-sandbox:python311-nowhere00", "is not in the engine"), ("busybox:1", "known stack")):
        with pytest.raises(ImageError, match=words):
            validate.validate(tag, client, runtime=RUNTIME, profile="{}")
    with pytest.raises(ImageError, match="no runtime nowhere; run scripts/setup"):
        validate.validate(ensure_image("python311", client).tag, client, runtime="nowhere", profile="{}")
    done = command("gauntlet-sandbox:python311-nowhere00")
    assert done.returncode == 1
    assert b"is not in the engine" in done.stderr
    assert b"Traceback" not in done.stderr
