"""What a CPU limit leaves of a busy loop: two sandboxes that differ in it alone, one after the other, in turns.

Wall time is the program's own clock; output comes back over the link. One busy process each: the limit, not the
number of the machine's CPUs, decides.
"""

from __future__ import annotations

from daemon.pool.entry import PoolEntry
from tests.bench.figures import Figure, figure
from tests.bench.options import Options
from tests.bench.rig import answer, rig

ROUNDS = 10
SPIN = (
    "import time\n"
    "end, turns = time.monotonic() + 1.5, 0\n"
    "while time.monotonic() < end:\n"
    "    turns += 1\n"
    "print(turns / 1.5)\n"
)


async def run(options: Options) -> list[Figure]:
    """Turns a second at one CPU and at half of one, and their ratio (0.5 is the limit's promise)."""
    async with rig() as made:
        whole, half = await made.sandbox(cpu_millis=1_000), await made.sandbox(cpu_millis=500)
        pairs = [(await _turns(half), await _turns(whole)) for _ in range(options.count(ROUNDS))]
    one = figure("busy loop, 1 CPU", [pair[1] for pair in pairs], "turns/s")
    return [one, figure("busy loop, half a CPU", [pair[0] for pair in pairs], "turns/s", beside=one, pairs=pairs)]


async def _turns(entry: PoolEntry) -> float:
    return float(await answer(entry, "python3", "-c", SPIN))
