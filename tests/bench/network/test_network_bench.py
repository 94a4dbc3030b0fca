"""How long a file of 200 services takes to check, explain and render; prints, asserts no time.

The target is one second for all three together. Rows go to `build/bench.json` through `make bench`.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from network.check import Source, check
from network.explain import provenance, table
from network.render.backend import render

SERVICES = 200
ROUNDS = 7
TARGET_SECONDS = 1.0


def big_file() -> str:
    """200 services on 20 networks, with environment and health check as real files have them."""
    lines = ["services:"]
    for number in range(SERVICES):
        lines += [
            f"  svc-{number}:",
            f"    image: registry.example/svc:{number}",
            "    command: [serve, --port, '8080']",
            "    environment: {A: x, B: y}",
            "    healthcheck: {test: [CMD, check], interval: 5s}",
            f"    networks: [net-{number % 20}, net-{(number + 1) % 20}]",
        ]
    lines += ["networks:", *(f"  net-{number}: {{internal: true}}" for number in range(20))]
    lines += ["x-k8s: {allow_domains: [" + ", ".join(f"t{number}.example.com" for number in range(20)) + "]}"]
    return "\n".join(lines)


def measured(work: Callable[[], Any]) -> list[float]:
    """Seconds of each round, the first one (warm-up) left out."""
    seconds = []
    for _ in range(ROUNDS + 1):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return sorted(seconds[1:])


def test_two_hundred_services(record_property: Callable[[str, object], None]) -> None:
    source = Source(big_file(), "compose.yaml")
    checked = check(source)
    assert checked.ok and len(checked.matrix) == SERVICES

    def everything() -> None:
        outcome = check(source)
        table(outcome.matrix)
        provenance(outcome.matrix)
        json.dumps(outcome.to_json())
        json.dumps(render(outcome, "cilium").to_json())

    rows = {
        "network_check_200": measured(lambda: check(source)),
        "network_render_200": measured(lambda: render(checked, "cilium")),
        "network_check_explain_render_200": measured(everything),
    }
    print(f"\n{'name':36} {'p50':>8} {'p95':>8} {'p99':>8} s   target")
    for name, seconds in rows.items():
        p50, worst = statistics.median(seconds), seconds[-1]
        row = {"name": name, "p50": p50, "p95": worst, "p99": worst, "unit": "s", "beside": None, "ratio": None}
        record_property("bench", {**row, "target": TARGET_SECONDS})
        print(f"{name:36} {p50:8.3f} {worst:8.3f} {worst:8.3f} s   {TARGET_SECONDS}")
