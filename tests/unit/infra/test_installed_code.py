"""What the stack `local` installs is enough: every service imports, with nothing of the repository in reach."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra.local.kinds.installation import REPOSITORY, code_files

SERVICES = ("scheduler.main", "daemon.node", "daemon.trace.__main__", "records.collector.__main__", "judges.worker")

# The test's interpreter finds the repository by a .pth file; a service's interpreter has none.
HIDDEN = [str(REPOSITORY), str(REPOSITORY / "proto")]
OUT_OF_REACH = f"import sys; sys.path[:] = [path for path in sys.path if path not in {HIDDEN}]; "


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("code")
    for path in code_files():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / path, target)
    return directory


@pytest.mark.parametrize("module", SERVICES)
def test_a_service_imports_from_what_is_installed(installed: Path, module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_REACH + f"import {module}"],
        cwd=installed,
        env={**os.environ, "PYTHONPATH": f"{installed}:{installed / 'proto'}", "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
