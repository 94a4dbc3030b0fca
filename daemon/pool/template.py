"""What is fixed when an entry is made, and the digest that names it.

Owns the key: an entry serves a claim only when the keys are equal. What differs by challenge (files, seed,
environment, time limit) arrives with the assignment and is left out.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property

from daemon.runtime.types import Resources


@dataclass(frozen=True)
class Template:
    """One kind of sandbox, everything by digest.

    `image_digest` is the image's id; `network` is the identity of the network policy: "none" where there is no network
    at all, whatever the challenge's file calls its service, else the policy's digest;
    `profile_digest` is the seccomp profile's `profile_digest(text)`; `runtime` the name registered at the engine and
    `runtime_digest` a digest of its binary and flags, so that an upgraded runtime serves no old entry.
    """

    stack: str
    image_digest: str
    resources: Resources
    profile_digest: str
    runtime: str
    runtime_digest: str
    network: str = "none"

    @cached_property
    def key(self) -> str:
        """`sha256:…` over the canonical JSON (sorted keys, no spaces, UTF-8) of every field."""
        canonical = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def profile_digest(text: str) -> str:
    """`sha256:…` of a seccomp profile's JSON text, byte for byte."""
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
