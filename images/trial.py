"""The sandboxes that the validation suite tries an image in: like an agent's, with a directory of the agent's.

Owns how they are made and that they are gone afterwards; what is tried in them is `images.validate`.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from images import probing
from images.build import default_cache, private
from images.expectations import FILE, OPEN, PIDS, TMP
from images.stacks import SUPERVISOR_PATH

MEMORY = 512 * 1024**2
CAPABILITIES = ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"]
WORK = "/workspace/submissions"
"""The agent's directory, whose files may be executed; the network probe lies in it."""


@dataclass(frozen=True)
class Place:
    """Where sandboxes are made: an engine's client, an image, a runtime entry, a seccomp profile's text.

    `network` is what the engine attaches: nothing, unless a test wants to see that the suite notices.
    """

    client: Any
    image: str
    runtime: str
    profile: str
    network: str = "none"

    @contextlib.contextmanager
    def sandbox(self, *, memory: int = MEMORY) -> Iterator[Any]:
        """A sandbox with its PID 1 running, and a directory of the agent's with the probe in it; gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="gauntlet-validate-") as scratch:
            place = Path(scratch)
            place.chmod(0o755)
            work = place / "submissions"
            work.mkdir()
            work.chmod(0o777)
            probing.place(private(default_cache()), work)
            container = self.client.containers.create(
                self.image,
                [SUPERVISOR_PATH],
                runtime=self.runtime,
                network_mode=self.network,
                hostname="sandbox",
                user="0:0",
                working_dir="/",
                stdin_open=True,
                read_only=True,
                mem_limit=memory,
                memswap_limit=memory,
                nano_cpus=2_000_000_000,
                pids_limit=4096,
                ulimits=[
                    {"Name": n, "Soft": v, "Hard": v} for n, v in (("nproc", PIDS), ("fsize", FILE), ("nofile", OPEN))
                ],
                tmpfs={"/tmp": f"rw,noexec,nosuid,size={TMP}"},
                cap_drop=["ALL"],
                cap_add=CAPABILITIES,
                security_opt=["no-new-privileges", f"seccomp={self.profile}"],
                volumes={str(work): {"bind": WORK, "mode": "rw"}},
                log_config={"Type": "none", "Config": {}},
            )
            try:
                container.start()
                yield container
            finally:
                container.remove(force=True)
