"""Small challenges and scripts for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def make_challenge(directory: Path, **description: Any) -> Path:
    """A challenge whose visible test wants src/answer.py to say 42 and whose hidden test wants a docstring too."""
    values = {"id": "answer", "title": "Answer", "stack": "python311", "time_limit_seconds": 120, **description}
    files = {
        "challenge.yaml": json.dumps(values),  # JSON is YAML
        "workspace/challenge/briefing.md": "Make answer() return 42.\n",
        "workspace/challenge/src/answer.py": "def answer():\n    return 0\n",
        "workspace/challenge/tests/test_answer.py": (
            "import sys\nsys.path.insert(0, 'src')\nfrom answer import answer\n\n"
            "def test_answer():\n    assert answer() == 42\n"
        ),
        "workspace/tools/bin/hello": "#!/bin/sh\necho hello\n",
        "hidden/hidden_tests/edge_cases/test_edge.py": (
            "from answer import answer\n\ndef test_doc():\n    assert answer.__doc__\n\n"
            "def test_type():\n    assert type(answer()) is int\n"
        ),
        "hidden/reference/src/answer.py": 'def answer():\n    """The answer."""\n    return 42\n',
    }
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (directory / "workspace/tools/bin/hello").chmod(0o755)
    return directory


def exec_step(*argv: str, **more: Any) -> dict[str, Any]:
    """A script's exec step."""
    return {"tool": "exec", "argv": list(argv), **more}


def write_script(path: Path, *steps: dict[str, Any]) -> Path:
    """A script of these steps."""
    path.write_text("".join(json.dumps(step) + "\n" for step in steps))
    return path
