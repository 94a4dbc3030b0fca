"""`python -m tests.bench [--only NAME…] [--quick]`: measure, print a table, write build/bench.json.

Owns the list of benches and what a person sees; how each is measured stands in its module and in docs/figures.md. A
bench that fails is told at the end, the others go on, and the exit code is 1. A target that is missed is shown and
changes no exit code: figures depend on the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import inspect
import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.bench.figures import Figure, figure
from tests.bench.options import FAKE_CYCLES, REAL_CYCLES, Options
from tests.bench.report import markdown, show

REPOSITORY = Path(__file__).resolve().parents[2]
OUTPUT = REPOSITORY / "build" / "bench.json"
# Modules are imported when their turn comes: one that cannot be imported takes no other with it.
BENCHES = {
    "claims": "warm claims, the first exec after them, cold claims beside docker create + start",
    "execs": "an exec beside docker exec in the same sandbox",
    "pressure": "a supervisor's ping under a busy agent, a neighbour's exec under a fork bomb",
    "shares": "a busy loop at one CPU and at half of one",
    "telemetry": "events a second from source to store, and their lag",
    "cost": "a build and a run of processes with full telemetry beside none",
    "assignments": "the scheduler's assignments a second on SQLite and PostgreSQL",
    "memory": "the daemon's memory with 16 sandboxes and over many",
    "workspaces": "prepare, assign, freeze, extract",
    "preview": "pulumi preview of the stack local",
    "networks": "check, explain and render 200 services",
}
Run = Callable[[Options], list[Figure] | Awaitable[list[Figure]]]


def main() -> int:
    """Parse, measure, tell."""
    arguments = _parse()
    options = Options.of(arguments.quick, arguments.fake_cycles, arguments.real_cycles)
    figures: list[Figure] = []
    loads = [os.getloadavg()[0]]
    failed: list[str] = []
    for name in arguments.only or BENCHES:
        print(f"bench: {name}: {BENCHES[name]}", file=sys.stderr, flush=True)
        began = time.monotonic()
        try:
            figures += _measure(name, options)
        except Exception:  # noqa: BLE001 - the boundary: one broken bench must not cost the others' figures
            traceback.print_exc()
            failed.append(name)
        loads.append(os.getloadavg()[0])
        print(f"bench: {name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    figures.append(figure("machine: load average of one minute", loads, "tasks"))
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps([one.to_json() for one in figures], indent=1, ensure_ascii=False) + "\n")
    if arguments.markdown:
        print(markdown(figures))
    else:
        show(figures, f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}")
    print(f"bench: written to {OUTPUT.relative_to(REPOSITORY)}", file=sys.stderr)
    for name in failed:
        print(f"bench: {name} FAILED; its traceback is above", file=sys.stderr)
    return 1 if failed else 0


def _measure(name: str, options: Options) -> list[Figure]:
    run: Run = importlib.import_module(f"tests.bench.{name}_bench").run
    if inspect.iscoroutinefunction(run):
        found: list[Figure] = asyncio.run(run(options))
        return found
    return run(options)  # type: ignore[return-value]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="The figures of Gauntlet Sandbox.")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=BENCHES, help=", ".join(BENCHES))
    parser.add_argument("--quick", action="store_true", help="a tenth of the samples, for a first look")
    parser.add_argument("--fake-cycles", type=int, metavar="N", help=f"sandboxes on the fake runtime, {FAKE_CYCLES}")
    parser.add_argument("--real-cycles", type=int, metavar="N", help=f"sandboxes on the real runtime, {REAL_CYCLES}")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown, for docs/figures.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
