"""A real collector process for tests: started from its configuration, killed and started again by its pid."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from records.database import open_engine
from records.events.sql import SqlEventStore, create_schema

ROOT = Path(__file__).parents[2]
READY_SECONDS = 60


class Collector:
    """One collector over one database; `directory` must have a short path, since it holds the socket."""

    def __init__(self, directory: Path, database_url: str | None = None) -> None:
        self.endpoint = f"unix://{directory}/collector.sock"
        self.database_url = database_url or f"sqlite:///{directory}/events.db"
        self.config = directory / "collector.yaml"
        self.config.write_text(json.dumps({"endpoint": self.endpoint, "database_url": self.database_url}))
        self.log = directory / "collector.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it serves."""
        before = self.log.read_text().count("collector_ready") if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "records.collector", "--config", str(self.config)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'proto'}"},
                stdin=subprocess.DEVNULL,
                stderr=log,
            )
        deadline = time.monotonic() + READY_SECONDS
        while self.log.read_text().count("collector_ready") == before:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the collector did not start: {self.log.read_text()[-2000:]}")
            time.sleep(0.02)

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=10)

    def stop(self) -> int:
        """Orderly end; returns the exit code."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=20)

    def store(self) -> SqlEventStore:
        """A reader of its database; close it."""
        engine = open_engine(self.database_url)
        create_schema(engine)
        return SqlEventStore(engine)
