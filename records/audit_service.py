"""gauntlet.audit.v1.AuditService over a ledger: gRPC to domain, nothing else. It only reads.

Mounted on the operator socket by the scheduler's process.
"""

from __future__ import annotations

import asyncio
from typing import Any

from gauntlet.audit.v1 import audit_service_pb2 as pb
from gauntlet.audit.v1 import audit_service_pb2_grpc as pb_grpc

from records.errors import RecordsError
from records.ledger.port import Ledger
from records.translate import translate
from wire.errors import invalid, not_found

SERVICE = "gauntlet.audit.v1.AuditService"


class AuditService(pb_grpc.AuditServiceServicer):
    """Reads records and verifies the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def GetRecord(self, request: pb.GetRecordRequest, context: Any) -> pb.GetRecordResponse:
        """See the proto."""
        if request.revision < 0:
            raise invalid("BAD_REQUEST", "revisions count from 1", [("revision", "0 means the latest")])
        try:
            entry = await asyncio.to_thread(self._ledger.get, request.attempt_id, request.revision or None)
        except RecordsError as error:
            raise translate(error) or error from error
        if entry is None:
            raise not_found("record", request.attempt_id)
        return pb.GetRecordResponse(
            record_json=entry.record,
            revision=entry.revision,
            sequence=entry.sequence,
            entry_hash=entry.entry_hash,
        )

    async def VerifyLedger(self, request: pb.VerifyLedgerRequest, context: Any) -> pb.VerifyLedgerResponse:
        """See the proto."""
        try:
            report = await asyncio.to_thread(self._ledger.verify)
        except RecordsError as error:
            raise translate(error) or error from error
        return pb.VerifyLedgerResponse(entries=report.entries, head_hash=report.head_hash, problems=report.problems)
