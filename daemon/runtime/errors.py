"""Typed failures of the runtime port.

Owns the exceptions; mapping them to gRPC codes or to an attempt's fault belongs to others.
"""

from __future__ import annotations


class RuntimeFault(Exception):
    """Base of everything a `Runtime` raises on purpose."""


class RuntimeUnavailable(RuntimeFault):
    """The engine does not answer: not running, restarting, or its socket is gone. Retry later."""


class RuntimeTimeout(RuntimeFault):
    """The engine took longer than the call's deadline. A create that answers later is destroyed on arrival."""

    def __init__(self, call: str, seconds: float | None = None) -> None:
        """Say which call, and what it was given; without `seconds`, what could not be confirmed in time."""
        super().__init__(
            f"{call} was not confirmed in time" if seconds is None else f"{call}: no answer in {seconds:g} s"
        )
        self.call = call
        self.seconds = seconds


class ImageMissing(RuntimeFault):
    """The image is not on this node."""

    def __init__(self, image: str) -> None:
        """Name the image and the remedy."""
        super().__init__(f"image {image} is not on this node: build it with `make images`, or pull it")
        self.image = image


class CreateFailed(RuntimeFault):
    """The engine or the runtime refused to create or start; nothing was left behind."""

    def __init__(self, reason: str) -> None:
        """Keep the engine's words."""
        super().__init__(f"create failed: {reason}")
        self.reason = reason


class NoSuchSandbox(RuntimeFault):
    """No container of that id or name exists (any more), or it is not running where it must be."""

    def __init__(self, container_id: str, detail: str = "") -> None:
        """Name the container."""
        super().__init__(f"no sandbox {container_id[:12]}" + (f": {detail}" if detail else ""))
        self.container_id = container_id
        self.detail = detail
