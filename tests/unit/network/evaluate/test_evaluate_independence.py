"""The evaluator is a second opinion only while it shares no code with what it judges."""

from __future__ import annotations

import ast
from pathlib import Path

import network.evaluate


def test_the_evaluator_imports_nothing_of_ours_but_itself() -> None:
    sources = sorted(Path(network.evaluate.__path__[0]).glob("*.py"))
    assert len(sources) > 10
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            foreign = [name for name in names if name.startswith("network") and not name.startswith("network.evaluate")]
            assert not foreign, f"{source.name} imports {foreign}"


def test_the_renderers_import_nothing_of_the_evaluator() -> None:
    for source in sorted(Path(network.evaluate.__path__[0]).parent.glob("render/*.py")):
        assert "network.evaluate" not in source.read_text(), source.name
