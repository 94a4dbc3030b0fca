"""The seccomp profile in use, as a file that belongs to root."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.local.kinds.base import Kind, State
from infra.local.places import Places


class SeccompProfile(Kind):
    """`gauntlet:local:SeccompProfile`."""

    outputs = ("path", "digest")
    inputs = ("instance", "text")
    replaced_by = ("instance",)

    def create(self, inputs: Mapping[str, Any]) -> tuple[str, State]:
        """Write the profile in one step."""
        path = Places(inputs["instance"]).profile
        path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text(inputs["text"])
        fresh.chmod(0o644)
        fresh.replace(path)
        return str(path), {**inputs, "path": str(path), "digest": _digest(inputs["text"])}

    def read(self, resource_id: str, state: Mapping[str, Any]) -> State | None:
        """There while the file holds exactly the profile."""
        path = Path(state["path"])
        return dict(state) if path.is_file() and _digest(path.read_text()) == state["digest"] else None

    def delete(self, resource_id: str, state: Mapping[str, Any]) -> None:
        """Remove the file."""
        Path(state["path"]).unlink(missing_ok=True)


def _digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
