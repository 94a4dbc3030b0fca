"""The stack `local` under another name and instance, by the real Pulumi engine, with a backend of its own."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.support.environment import REPOSITORY

UP_SECONDS = 400


class LocalStack:
    """One stack in a temporary backend; `settings` may be changed between `up`s."""

    def __init__(self, directory: Path) -> None:
        self.instance = f"e{secrets.token_hex(3)}"
        self.name = f"test-{self.instance}"
        self._config = directory / "stack.yaml"
        backend = directory / "backend"
        backend.mkdir()
        self._environment = {
            **os.environ,
            "PULUMI_BACKEND_URL": f"file://{backend}",
            "PULUMI_CONFIG_PASSPHRASE": "test",
        }
        committed = yaml.safe_load((REPOSITORY / "stacks" / "Pulumi.local.yaml").read_text())
        self.settings: dict[str, Any] = committed["config"]["gauntlet:local"]
        self.settings["instance"] = self.instance
        self.settings["stacks"]["python311"]["pool"] = 1
        self.write()
        self.pulumi("stack", "init", self.name)
        # Pulumi puts the new stack's salt among the repository's stacks: it belongs beside our own settings.
        written = REPOSITORY / "stacks" / f"Pulumi.{self.name}.yaml"
        if written.exists():
            salt = yaml.safe_load(written.read_text())
            written.unlink()
            self._config.write_text(yaml.safe_dump({**yaml.safe_load(self._config.read_text()), **salt}))

    @property
    def endpoint(self) -> str:
        """The scheduler's operator endpoint."""
        return f"unix:///run/gauntlet/{self.instance}/scheduler.sock"

    def write(self) -> None:
        """Write the settings where the next `up` reads them."""
        kept = yaml.safe_load(self._config.read_text()) if self._config.exists() else {}
        self._config.write_text(yaml.safe_dump({**kept, "config": {"gauntlet:local": self.settings}}))

    def pulumi(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run one Pulumi command."""
        done = subprocess.run(
            [str(REPOSITORY / "scripts" / "pulumi"), *arguments, "--non-interactive"],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=UP_SECONDS,
            check=False,
        )
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    def up(self, *options: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """`pulumi up`."""
        return self.pulumi(
            "up", "--yes", "--stack", self.name, "--config-file", str(self._config), *options, check=check
        )

    def preview(self) -> dict[str, int]:
        """`pulumi preview`: how many resources each operation would touch."""
        command = ("preview", "--json", "--stack", self.name, "--config-file", str(self._config))
        counts: dict[str, int] = json.loads(self.pulumi(*command).stdout)["changeSummary"]
        return counts

    def destroy(self) -> None:
        """`pulumi destroy`."""
        self.pulumi("destroy", "--yes", "--stack", self.name, "--config-file", str(self._config))

    def services(self) -> dict[str, dict[str, Any]]:
        """The services' states by name, as Pulumi keeps them."""
        exported = json.loads(self.pulumi("stack", "export", "--stack", self.name).stdout)
        resources = exported["deployment"].get("resources", [])
        return {r["outputs"]["name"]: r["outputs"] for r in resources if r["type"] == "gauntlet:local:Service"}

    def child(self, service: str) -> int:
        """The pid of a service's own process."""
        status = Path("/var/lib/gauntlet") / self.instance / "services" / service / "status.json"
        pid: int = json.loads(status.read_text())["child_pid"]
        return pid
