"""The plan that the probe runs: its checks, and the digest that ties the results to it.

Owns the plan's form and its limits; what to try is `network.probe`, what came of it `network.proberesults`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from network.probe import Check

VARIABLE = "GAUNTLET_PROBE_PLAN"
DEFAULT_TIMEOUT_MS = 2000
MAX_CHECKS = 512
"""How many `tools/netprobe` takes."""
MAX_BYTES = 128 * 1024 - len(VARIABLE) - 2
"""What one variable of a new process may hold: Linux takes 128 KiB with its name, `=` and the closing zero byte."""


class PlanError(ValueError):
    """The probe could not run this plan; the message says what to leave out."""


@dataclass(frozen=True)
class ProbePlan:
    """What is asked, and of whom: one service of one sandbox on one backend.

    `policy` is the digest of the policy that the sandbox runs under (`Checked.digest`), "" where there is no file.
    PlanError when the probe could not run it.
    """

    checks: tuple[Check, ...]
    service: str
    backend: str
    sandbox_id: str
    namespace: str = ""
    policy: str = ""
    timeout_ms: int = DEFAULT_TIMEOUT_MS

    def __post_init__(self) -> None:
        found = len(self.checks)
        if not 1 <= found <= MAX_CHECKS:
            raise PlanError(f"the plan has {found} checks, the probe takes 1 to {MAX_CHECKS}: name fewer targets")
        size = len(self.text.encode())
        if size > MAX_BYTES:
            raise PlanError(f"the plan has {size} bytes, the probe takes {MAX_BYTES}: name fewer targets")

    @cached_property
    def digest(self) -> str:
        """SHA-256 over everything in it, expectations too: results carry it, so that another plan's are told."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """What the probe reads: `{"digest", "timeout_ms", "checks"}`; it holds no expectation."""
        return {
            "digest": self.digest,
            "timeout_ms": self.timeout_ms,
            "checks": [
                {
                    "id": check.id,
                    "kind": check.kind,
                    "address": check.address,
                    "port": check.port,
                    "name": check.name,
                    "server_name": check.server_name,
                }
                for check in self.checks
            ],
        }

    @cached_property
    def text(self) -> str:
        """`to_json` as the value of the variable GAUNTLET_PROBE_PLAN."""
        return json.dumps(self.to_json(), separators=(",", ":"))
