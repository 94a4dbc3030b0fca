"""What a run of the benches was asked for: how many samples each, how many sandboxes."""

from __future__ import annotations

from dataclasses import dataclass

FAKE_CYCLES = 2_000
REAL_CYCLES = 200


@dataclass(frozen=True, slots=True)
class Options:
    """`quick` is for a first look: a tenth of the samples, percentiles that say little."""

    quick: bool = False
    fake_cycles: int = FAKE_CYCLES
    real_cycles: int = REAL_CYCLES

    @classmethod
    def of(cls, quick: bool, fake_cycles: int | None = None, real_cycles: int | None = None) -> Options:
        """The cycles that were asked for, else the full count or a part of it."""
        return cls(
            quick,
            fake_cycles if fake_cycles is not None else FAKE_CYCLES // (10 if quick else 1),
            real_cycles if real_cycles is not None else REAL_CYCLES // (20 if quick else 1),
        )

    def count(self, full: int) -> int:
        """`full` samples, or a tenth of them, at least three."""
        return max(3, full // 10) if self.quick else full
