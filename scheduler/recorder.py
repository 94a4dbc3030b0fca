"""The recorder: appends one record per attempt to the audit ledger, after its end and before its final state shows.

Which attempts lack their record is read from the database, the record is the same bytes every time, and the ledger
refuses a second one: a kill between append and note costs a repeated, idempotent append.
"""

from __future__ import annotations

import structlog

from records.errors import RecordConflictError
from records.ledger.port import Ledger
from scheduler.attempts import Attempts
from scheduler.model import FINAL, Attempt
from scheduler.record_builder import build_record
from scheduler.store.threaded import StoreThread

log = structlog.get_logger(__name__)

TICK_SECONDS = 1.0


class Recorder:
    """Appends what is due. `thread` is the ledger's own: a slow ledger must not hold up the control database."""

    def __init__(self, attempts: Attempts, ledger: Ledger, thread: StoreThread) -> None:
        self._attempts = attempts
        self._ledger = ledger
        self._thread = thread

    async def record_due(self) -> None:
        """Append every record that is due."""
        for attempt in await self._attempts.find({"state": FINAL, "recorded": False}):
            await self._record(attempt)

    async def _record(self, attempt: Attempt) -> None:
        document = build_record(attempt, final=True).document()
        try:
            await self._thread.run(self._ledger.append, attempt.attempt_id, document)
        except RecordConflictError:
            # The ledger holds a record of this attempt that reads otherwise: it is the truth, ours must not replace it.
            log.exception("record_conflict", attempt_id=attempt.attempt_id)
        when = {"state": FINAL, "recorded": False}
        await self._attempts.change(attempt.attempt_id, when, {"recorded": True})
        outcome = attempt.outcome.value if attempt.outcome is not None else None
        log.info("attempt_recorded", attempt_id=attempt.attempt_id, state=attempt.state.value, outcome=outcome)

    async def step(self) -> None:
        """One turn of the loop."""
        await self._attempts.bells.records.wait(TICK_SECONDS)
        await self.record_due()
