"""A private engine whose dockerd is killed and started again, while containerd and what runs on it live on."""

from __future__ import annotations

import json
import os
import signal
import subprocess

from scripts.provision.docker_engine import current_engine, debian_engine
from tests.support.engines import RunningEngine


class Restartable:
    """A private engine whose dockerd may be killed and started again."""

    def __init__(self, engine: RunningEngine) -> None:
        self.engine = engine
        self._pid = engine.pid
        self._process: subprocess.Popen[bytes] | None = None

    def kill(self) -> None:
        """SIGKILL dockerd; its containerd and shims live on."""
        os.kill(self._pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def start(self, *, live_restore: bool = False) -> None:
        """Start it on the same roots."""
        config = json.loads(self.engine.config.read_text()) | {"live-restore": live_restore}
        self.engine.config.write_text(json.dumps(config))
        # The older release's containerd dies with it; a pid file that names a reused pid would stop the new one.
        for name in ("dockerd.pid", "exec/containerd/containerd.pid"):
            (self.engine.root / name).unlink(missing_ok=True)
        programs = current_engine() if self.engine.flavour == "current" else debian_engine()
        path = os.pathsep.join([*map(str, programs.directories), "/usr/sbin:/usr/bin:/sbin:/bin"])
        with self.engine.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(programs.dockerd), "--config-file", str(self.engine.config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={"PATH": path, "HOME": "/root"},
                start_new_session=True,
            )
        self._pid = self._process.pid

    def end(self) -> None:
        """Let a dockerd that we started end in order, so that it unmounts what it mounted."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
