"""The real Pulumi engine runs Python programs through the language host that setup installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.provision.places import bin_directory

pytestmark = [pytest.mark.pulumi]

PROGRAM = """
import pulumi
config = pulumi.Config()
pulumi.export("greeting", "hello " + config.require("name"))
pulumi.export("secret", config.require_secret("word"))
"""


class Project:
    """A throw-away Pulumi project with a backend of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "state").mkdir()
        virtualenv = Path(sys.executable).parents[1]
        (directory / "Pulumi.yaml").write_text(
            f"name: probe\nruntime: {{name: python, options: {{virtualenv: {virtualenv}}}}}\n", encoding="utf-8"
        )

    def pulumi(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        environment = {
            **os.environ,
            "PATH": f"{bin_directory()}:{os.environ['PATH']}",
            "PULUMI_BACKEND_URL": f"file://{self.directory}/state",
            "PULUMI_PYTHON_CMD": sys.executable,
            "PULUMI_HOME": str(self.directory / "home"),
            "PULUMI_CONFIG_PASSPHRASE": "test",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
        }
        return subprocess.run(
            ["pulumi", *arguments],
            cwd=self.directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    (tmp_path / "__main__.py").write_text(PROGRAM, encoding="utf-8")
    assert made.pulumi("stack", "init", "test").returncode == 0
    assert made.pulumi("config", "set", "name", "world").returncode == 0
    assert made.pulumi("config", "set", "--secret", "word", "xyzzy").returncode == 0
    return made


def test_a_program_runs_with_its_configuration_and_secrets(project: Project) -> None:
    up = project.pulumi("up", "--yes", "--non-interactive")
    assert up.returncode == 0, up.stdout + up.stderr
    assert "xyzzy" not in up.stdout
    shown = project.pulumi("stack", "output", "--json", "--show-secrets")
    assert json.loads(shown.stdout) == {"greeting": "hello world", "secret": "xyzzy"}


def test_a_preview_is_a_dry_run(project: Project) -> None:
    (project.directory / "__main__.py").write_text(
        "import pulumi\nassert pulumi.runtime.is_dry_run()\nprint('dry it is')\n", encoding="utf-8"
    )
    preview = project.pulumi("preview", "--non-interactive")
    assert preview.returncode == 0, preview.stdout + preview.stderr
    assert "dry it is" in preview.stdout


def test_a_failing_program_fails_the_update_with_its_message(project: Project) -> None:
    (project.directory / "__main__.py").write_text("raise ValueError('the reason why')\n", encoding="utf-8")
    up = project.pulumi("up", "--yes", "--non-interactive")
    assert up.returncode != 0
    assert "the reason why" in up.stdout + up.stderr


def test_about_names_the_interpreter_of_the_project(project: Project) -> None:
    about = project.pulumi("about", "--json")
    assert about.returncode == 0, about.stderr
    runtime = json.loads(about.stdout)["runtime"]
    assert runtime["language"] == "python"
    assert Path(runtime["executable"]).parent == Path(sys.executable).parent
