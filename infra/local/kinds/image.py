"""A stack's image on this machine, by content hash, and validated before any pool may hold it.

Destroying an environment leaves images: they are a cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import docker.errors

from images.archive import ImageRef
from images.build import content_key, ensure_image, present
from images.stacks import ImageError, find_stack
from images.validate import ensure_valid
from infra.local.engine import engine
from infra.local.kinds.base import Kind, ResourceFailed, State
from infra.local.runtime_registration import RUNSC
from seccomp.generate import PROFILE


class StackImage(Kind):
    """`gauntlet:local:StackImage`. `content` is the digest of what the image is made from."""

    outputs = ("tag", "digest", "layers")
    inputs = ("stack", "content", "docker_host")
    replaced_by = ("stack",)

    def create(self, inputs: Mapping[str, Any]) -> tuple[str, State]:
        """Build, or find built; then validate, or find validated."""
        with engine(inputs["docker_host"], timeout=600) as client:
            try:
                image = ensure_image(inputs["stack"], client)
                ensure_valid(image.tag, client, runtime=RUNSC, profile=PROFILE.read_text(encoding="utf-8"))
            except (ImageError, docker.errors.DockerException) as error:
                raise ResourceFailed(f"image of stack {inputs['stack']}: {error}") from error
        return image.tag, {**inputs, "tag": image.tag, "digest": image.digest, "layers": list(image.layers)}

    def read(self, resource_id: str, state: Mapping[str, Any]) -> State | None:
        """There while the engine has the tag with that digest."""
        with engine(state["docker_host"]) as client:
            there = present(ImageRef(state["tag"], state["digest"], tuple(state["layers"])), client)
        return dict(state) if there else None

    def delete(self, resource_id: str, state: Mapping[str, Any]) -> None:
        """Nothing: the image stays for the next environment."""


def stack_content(stack: str) -> str:
    """Digest of what a stack's image is made from. Raises ResourceFailed for an unknown stack."""
    try:
        return content_key(find_stack(stack))
    except ImageError as error:
        raise ResourceFailed(str(error)) from error
