"""The calm around claims: it holds, it ends by itself, and a stream of claims cannot make it last for ever."""

from __future__ import annotations

import asyncio

from daemon.attempts.calm import Calm

DEADLINE_SECONDS = 10


class Told:
    def __init__(self, calm: Calm) -> None:
        self.times = 0
        calm.resume = self._tell

    def _tell(self) -> None:
        self.times += 1


async def test_it_ends_once_and_says_so():
    calm = Calm(hold_seconds=0.05, longest_seconds=5)
    told = Told(calm)
    assert not calm.now
    calm.hold()
    calm.hold()
    assert calm.now
    async with asyncio.timeout(DEADLINE_SECONDS):
        await calm.over()
    assert not calm.now
    assert told.times == 1


async def test_claims_without_end_do_not_prolong_it_without_end():
    calm = Calm(hold_seconds=5, longest_seconds=0.05)
    told = Told(calm)
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not told.times:
            calm.hold()
            await asyncio.sleep(0)
    assert told.times == 1


async def test_it_can_begin_again():
    calm = Calm(hold_seconds=0.01, longest_seconds=5)
    told = Told(calm)
    async with asyncio.timeout(DEADLINE_SECONDS):
        for _ in range(3):
            calm.hold()
            await calm.over()
    assert told.times == 3
