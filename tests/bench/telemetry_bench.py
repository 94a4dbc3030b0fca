"""Telemetry's own benches, found and called: every module of tests/bench/telemetry with a function `rows`."""

from __future__ import annotations

import importlib
from pathlib import Path

from tests.bench.figures import Figure, adopt
from tests.bench.options import Options


def run(options: Options) -> list[Figure]:
    """Their rows; each takes its own time, about a minute. Raises RuntimeError when there is none."""
    found: list[Figure] = []
    for path in sorted((Path(__file__).parent / "telemetry").glob("*.py")):
        module = importlib.import_module(f"tests.bench.telemetry.{path.stem}")
        if hasattr(module, "rows"):
            found += adopt(module.rows())
    if not found:
        raise RuntimeError("no module of tests/bench/telemetry has a function `rows`")
    return found
