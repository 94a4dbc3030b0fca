"""A base image from a registry: only by digest, and only if it brings the promised Python."""

from pathlib import Path

import pytest

from images import build, registry
from images.stacks import ImageError, find_stack

STACK = find_stack("python311")


@pytest.mark.parametrize("base", ["ubuntu", "ubuntu:22.04", "ubuntu@sha256:12", "ubuntu:22.04@sha1:" + "0" * 64])
def test_a_base_by_tag_is_refused(base: str) -> None:
    with pytest.raises(ImageError, match="by digest"):
        registry.require_digest(base)


def test_a_base_by_digest_is_taken() -> None:
    registry.require_digest("ubuntu:22.04@sha256:" + "0a" * 32)


def test_the_dockerfiles_default_is_by_digest() -> None:
    text = (STACK.directory / "Dockerfile").read_text(encoding="utf-8")
    default = next(line for line in text.splitlines() if line.startswith("ARG BASE_IMAGE=")).partition("=")[2]
    registry.require_digest(default)


def test_the_base_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(registry.ENVIRONMENT_VARIABLE, raising=False)
    default = build.base_key(STACK)
    monkeypatch.setenv(registry.ENVIRONMENT_VARIABLE, "a@sha256:" + "0" * 64)
    first = build.base_key(STACK)
    monkeypatch.setenv(registry.ENVIRONMENT_VARIABLE, "a@sha256:" + "1" * 64)
    assert len({default, first, build.base_key(STACK)}) == 3


@pytest.mark.parametrize(("printed", "good"), [("Python 3.11.2", True), ("Python 3.10.12", False)])
def test_another_python_than_promised_is_refused(monkeypatch: pytest.MonkeyPatch, printed: str, good: bool) -> None:
    monkeypatch.setattr(registry, "run", lambda *_, **__: printed + "\n")
    if good:
        registry.require_python(STACK, "base", Path("/"))
    else:
        with pytest.raises(ImageError, match=r"base brings Python 3\.10\.12; stack python311 promises Python 3\.11"):
            registry.require_python(STACK, "base", Path("/"))
