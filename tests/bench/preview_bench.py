"""`pulumi preview` of the stack `local`, by the real engine, with a backend and an instance of its own.

Nothing is brought up: the preview plans everything, as a first `pulumi up` does. Beside it `pulumi version`, the cost
of starting the program through scripts/pulumi.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.bench.figures import Figure, Target, figure
from tests.bench.options import Options
from tests.support.local_stack import LocalStack

SAMPLES = 5


def run(options: Options) -> list[Figure]:
    """Two figures, seconds."""
    previews, versions = [], []
    with tempfile.TemporaryDirectory(prefix="gben-", dir="/tmp") as directory:
        stack = LocalStack(Path(directory))
        for number in range(options.count(SAMPLES) + 1):
            began = time.perf_counter()
            stack.pulumi("version")
            told = time.perf_counter()
            if not stack.preview().get("create"):
                raise RuntimeError("the preview plans nothing")
            if number:  # the first one warms up
                versions.append(told - began)
                previews.append(time.perf_counter() - told)
    floor = figure("pulumi version", versions, "s")
    pairs = list(zip(previews, versions, strict=True))
    target = Target("p50", "<", 30)
    return [
        floor,
        figure("pulumi preview of the stack local", previews, "s", beside=floor, pairs=pairs, targets=[target]),
    ]
