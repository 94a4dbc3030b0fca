"""Challenges for tests: a directory as an author writes it, and its package."""

from __future__ import annotations

from pathlib import Path

from formats.package import pack

FILES: dict[str, str] = {
    "challenge.yaml": "id: fix-sum\ntitle: Fix the sum\nstack: python311\ntime_limit_seconds: 60\n",
    "workspace/challenge/briefing.md": "Fix it.\n",
    "workspace/challenge/conftest.py": "# the challenge's own\n",
    "workspace/challenge/pytest.ini": "[pytest]\n",
    "workspace/challenge/docs/a.md": "a\n",
    "workspace/challenge/docs/deep/b.md": "b\n",
    "workspace/challenge/src/app.py": "def add(a, b):\n    return a - b\n",
    "workspace/challenge/src/old.py": "OLD = 1\n",
    "workspace/challenge/tests/test_app.py": "def test_add():\n    assert True\n",
    "workspace/challenge/tests/data/one.txt": "1\n",
    "workspace/tools/bin/lint": "#!/bin/sh\necho lint\n",
    "hidden/hidden_tests/regression/test_hidden.py": "def test_hidden():\n    assert True\n",
    "hidden/reference/src/app.py": "def add(a, b):\n    return a + b\n",
}


def write_challenge(directory: Path, files: dict[str, str] | None = None) -> Path:
    """Write the files (default: `FILES`) with fixed modes, whatever the umask is."""
    for name, text in (FILES if files is None else files).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if "/bin/" in name else 0o644)
    for path in (directory, *directory.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
    return directory


def packed(directory: Path, target: Path) -> str:
    """Pack a challenge into `target`; returns the digest."""
    with target.open("w+b") as file:
        return pack(directory, file)
