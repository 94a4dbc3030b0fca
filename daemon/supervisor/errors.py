"""Typed failures of the supervisor link.

Owns the exceptions a caller of `SupervisorLink` may meet; mapping them to gRPC codes belongs to the service.
"""

from __future__ import annotations


class SupervisorError(Exception):
    """Base of everything this package raises on purpose."""


class SupervisorGone(SupervisorError):
    """The transport ended (sandbox dead, attach cut or link closed); every pending call fails with this."""


class ProtocolError(SupervisorError):
    """The peer broke the protocol: wrong version, impossible frame, or a reply that makes no sense."""


class ExecRefused(SupervisorError):
    """The supervisor would not start the command; nothing ran.

    `code` is one of NOT_ASSIGNED, DUPLICATE, TOO_MANY_EXECS, INVALID, STOPPING, NOT_FOUND.
    """

    def __init__(self, code: str, message: str) -> None:
        """Keep the code for mapping; the text is for people."""
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class TooManyExecs(ExecRefused):
    """The attempt already has its 32 live execs."""

    def __init__(self, message: str) -> None:
        """Fix the code."""
        super().__init__("TOO_MANY_EXECS", message)


class CallFailed(SupervisorError):
    """A control call (assign, signal, kill_all, stop) was answered with an error.

    `code` is e.g. ALREADY_ASSIGNED, NOT_FOUND, INVALID, UNCONFIRMED.
    """

    def __init__(self, code: str, message: str) -> None:
        """Keep the code for mapping."""
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class StdinClosed(SupervisorError):
    """The command closed its standard input or ended: `accepted` bytes reached its pipe."""

    def __init__(self, exec_id: str, accepted: int) -> None:
        """Say how much was taken."""
        super().__init__(f"exec {exec_id} takes no more stdin ({accepted} bytes were written)")
        self.exec_id = exec_id
        self.accepted = accepted


class StdinGap(SupervisorError):
    """A stdin offset beyond what was sent so far; `expected` is the next offset."""

    def __init__(self, exec_id: str, offset: int, expected: int) -> None:
        """Say what to send instead."""
        super().__init__(f"exec {exec_id}: stdin offset {offset} leaves a gap, send from {expected}")
        self.exec_id = exec_id
        self.offset = offset
        self.expected = expected


class FileFailed(SupervisorError):
    """A file call failed inside the sandbox, as the agent's own user.

    `errno_name` is ENOENT, EACCES, ENOSPC, EDQUOT, EISDIR, ENOTDIR, EEXIST, EINVAL, EFBIG, ETIMEDOUT, EIO …, or
    DIGEST_MISMATCH when the written bytes differ from the announced length or SHA-256.
    """

    def __init__(self, errno_name: str, path: str, message: str = "") -> None:
        """Keep name and path apart for mapping."""
        super().__init__(f"{path}: {errno_name}" + (f" ({message})" if message else ""))
        self.errno_name = errno_name
        self.path = path
        self.message = message
