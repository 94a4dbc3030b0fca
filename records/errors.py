"""The domain errors of this room. Services map them to the wire in `records.translate`; nothing here knows gRPC."""

from __future__ import annotations


class RecordsError(Exception):
    """Base of everything that this room raises on purpose."""


class SequenceGapError(RecordsError):
    """A batch begins after the line that the store expects; ship from `next_line`."""

    def __init__(self, attempt_id: str, kind: str, first_line: int, next_line: int) -> None:
        super().__init__(f"{attempt_id}/{kind}: the batch begins at line {first_line}, expected {next_line}")
        self.attempt_id = attempt_id
        self.kind = kind
        self.next_line = next_line


class BadRequestError(RecordsError):
    """A field of a request that cannot be served; the message says what to send instead."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class StoreUnavailableError(RecordsError):
    """The database cannot be reached or has no schema yet; try again."""


class RecordConflictError(RecordsError):
    """Another record exists under this attempt_id; append with `revise=True` if it was judged again."""

    def __init__(self, attempt_id: str) -> None:
        super().__init__(f"{attempt_id} already has another record; only a revision may follow it")
        self.attempt_id = attempt_id


class BlobError(RecordsError):
    """A blob that is missing, too large, or not what its digest says."""


class BlobTooLargeError(BlobError):
    """More bytes than the store takes in one blob."""


class BlobMissingError(BlobError):
    """No blob under this digest."""


class BlobCorruptError(BlobError):
    """The bytes on disk do not match their digest."""
