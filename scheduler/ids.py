"""Ids that the scheduler makes. Random, lower-case, safe in file names, container names and tokens."""

from __future__ import annotations

import secrets
import uuid

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_LENGTH = 16
# Names the ids of requests that must be the same after a kill: derived, not remembered.
_NAMESPACE = uuid.UUID("6f5b4c1e-5b0e-4f6e-9b43-6d0f0b6f2a10")


def attempt_id() -> str:
    """A new attempt's id: `att_` and 80 random bits."""
    return "att_" + "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))


def lease_id() -> str:
    """A new judging lease's id."""
    return "lea_" + "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))


def request_id(attempt_id: str, fence: int, verb: str) -> str:
    """The request id of one verb about one lease of an attempt: the same however often it is asked for."""
    return str(uuid.uuid5(_NAMESPACE, f"{attempt_id}/{fence}/{verb}"))
