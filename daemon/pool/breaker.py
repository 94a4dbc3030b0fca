"""A circuit breaker over one template's creates. Pure: told what happened and what time it is, it says what may be.

Closed → open after `threshold` failures in a row; open → one probe after the back-off; a probe's success closes it, its
failure doubles the back-off. Recovers by itself, since the next probe always comes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """Failures in a row that open it; seconds of the first and the longest back-off."""

    threshold: int = 3
    first_seconds: float = 1.0
    longest_seconds: float = 60.0


class Breaker:
    """State of one template's creates. Times are monotonic seconds."""

    def __init__(self, settings: BreakerSettings | None = None) -> None:
        """Closed."""
        self._settings = settings or BreakerSettings()
        self._failures = 0
        self._backoff = 0.0
        self._retry_at: float | None = None
        self.last_error = ""

    @property
    def open(self) -> bool:
        """It refuses creates, but for a probe once the back-off is over."""
        return self._retry_at is not None

    @property
    def retry_at(self) -> float | None:
        """When the next probe may start; None while closed."""
        return self._retry_at

    def allowance(self, now: float, creating: int) -> int | None:
        """How many creates may be under way in all: None for no bound, 0 for none."""
        if self._retry_at is None:
            # Under suspicion, never more at once than failures left before it opens: attempts stay bounded.
            return self._settings.threshold - self._failures if self._failures else None
        return 1 if now >= self._retry_at or creating else 0

    def failed(self, now: float, error: str) -> bool:
        """A create failed. True when this opened the breaker: the moment for the one alert."""
        self.last_error = error
        self._failures += 1
        if self._retry_at is not None:
            self._backoff = min(self._backoff * 2, self._settings.longest_seconds)
            self._retry_at = now + self._backoff
            return False
        if self._failures < self._settings.threshold:
            return False
        self._backoff = self._settings.first_seconds
        self._retry_at = now + self._backoff
        return True

    def succeeded(self) -> bool:
        """A create succeeded. True when this closed an open breaker."""
        was_open = self.open
        self._failures = 0
        self._retry_at = None
        self.last_error = ""
        return was_open
