"""Every exception of the daemon's domain, mapped to the wire in one total match."""

from __future__ import annotations

import grpc

from daemon.agent.execs import ExecIdTaken, ExecUnknown
from daemon.attempts.model import (
    AttemptEnded,
    ChallengeMissing,
    ClaimRefused,
    NetworkUnenforceable,
    ResourcesRefused,
    SandboxUnreachable,
    StaleFence,
    UnknownAttempt,
    UnknownStack,
)
from daemon.judging.sandboxes import JudgeSandboxUnknown, WorkspaceGone
from daemon.runtime.errors import RuntimeFault
from daemon.supervisor.errors import (
    CallFailed,
    ExecRefused,
    FileFailed,
    StdinClosed,
    StdinGap,
    SupervisorGone,
    TooManyExecs,
)
from daemon.workspace.model import DiskAdmissionError
from wire import errors
from wire.errors import WireError

_FILE_CODES = {
    "ENOENT": grpc.StatusCode.NOT_FOUND,
    "EACCES": grpc.StatusCode.PERMISSION_DENIED,
    "EPERM": grpc.StatusCode.PERMISSION_DENIED,
    "EROFS": grpc.StatusCode.PERMISSION_DENIED,
    "ENOSPC": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "EDQUOT": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "EFBIG": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "EMFILE": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "EAGAIN": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "EEXIST": grpc.StatusCode.ALREADY_EXISTS,
    "ETIMEDOUT": grpc.StatusCode.DEADLINE_EXCEEDED,
    "DIGEST_MISMATCH": grpc.StatusCode.INVALID_ARGUMENT,
    "EINVAL": grpc.StatusCode.INVALID_ARGUMENT,
    "ENAMETOOLONG": grpc.StatusCode.INVALID_ARGUMENT,
}


def translate(error: Exception) -> WireError | None:
    """The wire's error for a domain exception; None for what nobody expected (told as RUNTIME_FAULT)."""
    match error:
        case UnknownAttempt():
            return errors.not_found("attempt", error.attempt_id)
        case StaleFence():
            return errors.precondition("STALE_FENCE", str(error), "LEASE")
        case AttemptEnded():
            return errors.precondition("ATTEMPT_ENDED", str(error), error.attempt_id)
        case SandboxUnreachable():
            return errors.unavailable("SANDBOX_UNREACHABLE", str(error))
        case ChallengeMissing():
            return errors.precondition("CHALLENGE_MISSING", str(error), error.digest)
        case ClaimRefused():
            return errors.unavailable(error.reason, str(error))
        case UnknownStack():
            return errors.invalid("UNKNOWN_STACK", str(error), [("stack", str(error))])
        case NetworkUnenforceable():
            return errors.invalid("NETWORK_UNENFORCEABLE", str(error), [("network_digest", str(error))])
        case ResourcesRefused():
            return errors.invalid("RESOURCES_ABOVE_POLICY", str(error), [(f"resources.{error.name}", str(error))])
        case DiskAdmissionError():
            return errors.unavailable("NODE_FULL", str(error))
        case ExecUnknown():
            return errors.not_found("exec", error.exec_id)
        case ExecIdTaken():
            return WireError(grpc.StatusCode.ALREADY_EXISTS, "EXEC_ID_TAKEN", str(error))
        case TooManyExecs():
            return errors.exhausted("TOO_MANY_EXECS", error.message, "live commands of an attempt")
        case ExecRefused():
            return errors.precondition(f"EXEC_{error.code}", error.message)
        case FileFailed():
            return _file(error)
        case StdinGap():
            return errors.invalid("STDIN_GAP", str(error), [("offset", str(error))])
        case StdinClosed():
            return errors.precondition("STDIN_CLOSED", str(error), error.exec_id)
        case CallFailed():
            return errors.precondition(f"CALL_{error.code}", error.message)
        case SupervisorGone():
            return errors.precondition("SANDBOX_ENDED", "the sandbox has ended")
        case JudgeSandboxUnknown():
            return errors.not_found("judge_sandbox", error.judge_sandbox_id)
        case WorkspaceGone():
            return errors.precondition("WORKSPACE_LOST", str(error))
        case RuntimeFault():
            return errors.unavailable("RUNTIME_UNAVAILABLE", str(error))
        case _:
            return None


def translate_agents(error: Exception) -> WireError | None:
    """As `translate`, for the agent's calls, before which the attempt was seen running.

    A pipe that goes away under such a call says that the sandbox has ended or that the engine is away: which of them
    is known a moment later, so the client is asked to come again, and is then told.
    """
    if isinstance(error, SupervisorGone):
        return errors.unavailable("SANDBOX_UNREACHABLE", "the sandbox cannot be reached now; try again")
    return translate(error)


def _file(error: FileFailed) -> WireError:
    code = _FILE_CODES.get(error.errno_name, grpc.StatusCode.FAILED_PRECONDITION)
    full = error.errno_name in ("ENOSPC", "EDQUOT")
    return WireError(
        code,
        "DISK_FULL" if full else f"FILE_{error.errno_name}",
        str(error),
        metadata={"errno": error.errno_name},
        quota=[("workspace", "the disk quota is used up; delete files to go on")] if full else (),
        resource=("file", error.path),
    )
