"""The validation suite of an image: the specification's seven points, each tried in sandboxes like an agent's.

Runs before an image may enter a pool. Owns what is tried and the report; the scripts are `images.expectations`, the
network probe `images.probing`, the sandboxes `images.trial`. A result is kept by the digests of everything it depends
on, so that the same image is validated once a machine.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import docker.errors

from images import probing
from images.build import default_cache, private
from images.expectations import EXPECTATIONS, HIDDEN, LIMITS, NETWORK, Expectations, Expected
from images.stacks import AGENT_UID, HERE, REPOSITORY, ImageError
from images.trial import WORK, Place
from network.proberesults import ProbeError

START_LIMIT_SECONDS = 5.0
START_TRIES = 3
SCRIPT_SECONDS = 120
STOP_SECONDS = 60.0
SMALL_MEMORY = 96 * 1024**2
SOURCES = ("validate.py", "expectations.py", "probing.py", "trial.py")
AGENT = f"{AGENT_UID}:{AGENT_UID}"


@dataclass(frozen=True)
class Check:
    """One thing tried. `point` is the specification's; `seconds` what it took."""

    point: str
    name: str
    passed: bool
    detail: str
    seconds: float


@dataclass(frozen=True)
class Report:
    """What became of one image."""

    tag: str
    digest: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether the image may enter a pool."""
        return all(check.passed for check in self.checks)

    def failures(self) -> str:
        """The failed checks in words."""
        return "; ".join(f"{c.point}/{c.name}: {c.detail}" for c in self.checks if not c.passed)


class _Failed(Exception):
    """A check's own word on what is wrong."""


def validate(tag: str, client: Any, *, runtime: str, profile: str) -> Report:
    """Try an image.

    Args:
        tag: an image in the engine behind `client` (a `docker.DockerClient`), of one of our stacks.
        runtime: a runtime entry of that engine.
        profile: the seccomp profile's JSON text.

    Raises:
        ImageError: the image or the runtime is not there, or the stack is not known.
    """
    expectations = _expectations(tag)
    try:
        digest = client.images.get(tag).id
    except docker.errors.ImageNotFound as missing:
        raise ImageError(
            f"{tag} is not in the engine: see `docker images`, or build it with scripts/setup"
        ) from missing
    if runtime not in (client.info().get("Runtimes") or {}):
        raise ImageError(f"the engine has no runtime {runtime}; run scripts/setup")
    place = Place(client, digest, runtime, profile)
    return Report(tag, digest, tuple(_checks(place, expectations)))


def ensure_valid(
    tag: str,
    client: Any,
    *,
    runtime: str,
    profile: str,
    cache: Path | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> None:
    """Validate an image unless this machine has found the same image good under the same conditions.

    Raises:
        ImageError: it does not pass; the message names every failed check.
    """
    digest = client.images.get(tag).id
    entry = (client.info().get("Runtimes") or {}).get(runtime)
    promised = repr(probing.promised()) + probing.source_key()
    sources = ((HERE / name).read_text() for name in SOURCES)
    parts = [digest, profile, json.dumps(entry, sort_keys=True), promised, *sources]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    kept = private(cache or default_cache()) / f"valid-{key}.json"
    if kept.exists():
        return
    report(f"validating {tag} (seven points, about a minute, once)")
    found = validate(tag, client, runtime=runtime, profile=profile)
    if not found.passed:
        raise ImageError(f"{tag} does not pass validation: {found.failures()}; see `gauntlet image validate {tag}`")
    fresh = kept.with_suffix(".new")
    fresh.write_text(json.dumps(asdict(found), indent=1) + "\n", encoding="utf-8")
    fresh.replace(kept)


def _expectations(tag: str) -> Expectations:
    stack = tag.removeprefix(f"{REPOSITORY}:").partition("-")[0]
    try:
        return EXPECTATIONS[stack]
    except KeyError:
        known = ", ".join(sorted(EXPECTATIONS))
        raise ImageError(
            f"{tag} is no image of a known stack: tags are {REPOSITORY}:<stack>-<hash>, stacks are {known}"
        ) from None


def _checks(place: Place, expectations: Expectations) -> Iterator[Check]:
    yield _tried("start", "seconds to a running command", lambda: _start(place))
    yield _tried("limits", "memory", lambda: _memory(place))
    try:
        yield from _scripts(place, expectations)
    except docker.errors.DockerException as error:  # the sandbox itself; a script's failure is its check's
        yield Check("start", "a sandbox for the other checks", False, str(error), 0.0)


def _scripts(place: Place, expectations: Expectations) -> Iterator[Check]:
    with place.sandbox() as container:
        for point, group in (
            ("runtimes", expectations.runtimes),
            ("databases", expectations.databases),
            ("test runners", expectations.test_runners),
            ("limits", LIMITS),
            ("network", NETWORK),
            ("hidden", HIDDEN),
        ):
            for expected in group:
                yield _tried(point, expected.name, lambda expected=expected: _script(container, expected))  # type: ignore[misc]
        yield probed(container)


def _tried(point: str, name: str, work: Callable[[], str]) -> Check:
    began = time.monotonic()
    try:
        passed, detail = True, work()
    except (_Failed, docker.errors.DockerException) as error:
        passed, detail = False, str(error)
    return Check(point, name, passed, detail, round(time.monotonic() - began, 2))


def _start(place: Place) -> str:
    """The best of a few: a busy machine is not the image's fault."""
    best = float("inf")
    for _ in range(START_TRIES):
        began = time.monotonic()
        with place.sandbox() as container:
            code, words = container.exec_run(["true"], user=AGENT)
            took = time.monotonic() - began
        if code != 0:
            raise _Failed(f"a first command ended with {code}: {words.decode(errors='replace')}")
        best = min(best, took)
        if best < START_LIMIT_SECONDS:
            return f"{best:.2f} s (limit {START_LIMIT_SECONDS:g} s)"
    raise _Failed(f"{best:.2f} s, the best of {START_TRIES}; the limit is {START_LIMIT_SECONDS:g} s")


def _memory(place: Place) -> str:
    """One program over the limit; the engine must say OOM, whichever process the kernel took."""
    hog = "b = bytearray()\nwhile True: b += b'x' * 4_000_000"
    with place.sandbox(memory=SMALL_MEMORY) as container:
        code, _ = container.exec_run(["python3", "-c", hog], user=AGENT)
        deadline = time.monotonic() + STOP_SECONDS
        while time.monotonic() < deadline:
            container.reload()
            if container.attrs["State"]["OOMKilled"]:
                return "killed at the limit"
            time.sleep(0.1)
        raise _Failed(f"a program over {SMALL_MEMORY} bytes ended with {code} and no OOM was reported")


def probed(container: Any) -> Check:
    """Run the probe in a sandbox of `images.trial`."""
    return _tried("network", "what the probe reaches is what is promised", lambda: _probe(container))


def _probe(container: Any) -> str:
    """The probe's matrix, which must be the one of the `docker` backend for a sandbox that is granted nothing."""
    try:
        verdict = probing.probe(container, f"{WORK}/netprobe", user=AGENT)
    except ProbeError as error:
        raise _Failed(str(error)) from error
    if not verdict.ok:
        told = (f"{item.id}: expected {item.expected}, observed {item.observed}" for item in verdict.mismatches)
        raise _Failed("; ".join(told))
    return "nothing outside, no interface but loopback"


def _script(container: Any, expected: Expected) -> str:
    place = f"{WORK}/{hashlib.sha256(expected.script.encode()).hexdigest()[:12]}"
    script = f"mkdir {place} && cd {place} && export HOME={place}\n{expected.script}"
    code, output = container.exec_run(["timeout", str(SCRIPT_SECONDS), "bash", "-c", script], user=AGENT)
    text = output.decode(errors="replace").strip()
    last = text.splitlines()[-1].strip() if text else ""
    if code != 0 or last != expected.prints:
        raise _Failed(f"exit {code}, expected {expected.prints!r}, got {text[-400:]!r}")
    return last
