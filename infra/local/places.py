"""Where a local environment keeps things. One instance, one set of places; two instances share a host."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

STATE_ROOT = Path("/var/lib/gauntlet")
RUN_ROOT = Path("/run/gauntlet")
INSTANCE = re.compile(r"[a-z0-9][a-z0-9-]{0,20}")


@dataclass(frozen=True)
class Places:
    """Paths of one instance. Sockets lie in `run`, everything that lasts in `state`."""

    instance: str

    def __post_init__(self) -> None:
        if not INSTANCE.fullmatch(self.instance):
            raise ValueError(f"instance {self.instance!r}: use 1 to 21 of a-z, 0-9 and '-'")

    @property
    def state(self) -> Path:
        """Root of everything that lasts."""
        return STATE_ROOT / self.instance

    @property
    def run(self) -> Path:
        """Sockets."""
        return RUN_ROOT / self.instance

    @property
    def code(self) -> Path:
        """Installed code by digest, and interpreters by lock digest."""
        return self.state / "code"

    @property
    def bin(self) -> Path:
        """`gauntlet` for agent commands."""
        return self.state / "bin"

    @property
    def services(self) -> Path:
        """One directory per service: spec, config, status, log."""
        return self.state / "services"

    @property
    def keys(self) -> Path:
        """The token key."""
        return self.state / "keys"

    @property
    def token_key(self) -> Path:
        """32 random bytes."""
        return self.keys / "token.key"

    @property
    def panic_logs(self) -> Path:
        """Where the sentry leaves its last words."""
        return self.state / "panic"

    @property
    def trace(self) -> Path:
        """Where the trace sink writes what sandboxes are created with."""
        return self.state / "trace"

    @property
    def pod_init(self) -> Path:
        """The trace session that the runtime entry names."""
        return self.trace / "pod-init.json"

    @property
    def trace_socket(self) -> Path:
        """Where sentries connect. Root's alone."""
        return self.run / "sentries.sock"

    @property
    def profile(self) -> Path:
        """The seccomp profile in use."""
        return self.state / "seccomp.json"

    def socket(self, name: str) -> str:
        """A unix endpoint."""
        return f"unix://{self.run / name}.sock"

    @property
    def runtime(self) -> str:
        """The name of this instance's entry among Docker's runtimes."""
        return f"gauntlet-runsc-{self.instance}"
