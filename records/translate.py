"""This room's errors on the wire: one total mapping, for every service that it serves."""

from __future__ import annotations

import grpc

from records import errors
from wire.errors import WireError, invalid, not_found, unavailable


def translate(error: Exception) -> WireError | None:
    """The wire's error for a domain error; None for what is not ours (told as RUNTIME_FAULT)."""
    match error:
        case errors.SequenceGapError():
            return WireError(
                grpc.StatusCode.FAILED_PRECONDITION,
                "SEQUENCE_GAP",
                str(error),
                metadata={"next_line": str(error.next_line)},
                precondition=(("SEQUENCE_GAP", f"{error.attempt_id}/{error.kind}", str(error)),),
            )
        case errors.BadRequestError():
            return invalid("BAD_REQUEST", str(error), [(error.field, error.message)])
        case errors.StoreUnavailableError():
            return unavailable("STORE_UNAVAILABLE", "the database cannot be reached; try again")
        case errors.RecordConflictError():
            return WireError(grpc.StatusCode.ALREADY_EXISTS, "RECORD_EXISTS", str(error))
        case errors.BlobMissingError():
            return not_found("blob", str(error))
        case _:
            return None
