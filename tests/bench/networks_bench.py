"""The network room's bench (tests/bench/network), called with a collector of its rows."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from tests.bench.figures import Figure, adopt
from tests.bench.network.test_network_bench import test_two_hundred_services as two_hundred_services
from tests.bench.options import Options


def run(options: Options) -> list[Figure]:
    """Three figures, seconds."""
    rows: list[dict[str, Any]] = []
    with contextlib.redirect_stdout(sys.stderr):
        two_hundred_services(lambda name, value: rows.append(value))  # type: ignore[arg-type]
    return adopt(rows)
