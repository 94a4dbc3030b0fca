"""Between JSON payloads and the package's values; pure."""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from typing import Any, cast, get_args

from daemon.supervisor.errors import ProtocolError
from daemon.supervisor.types import (
    DirEntry,
    ExecInfo,
    ExecResult,
    ExecSpec,
    FileDigest,
    FileStat,
    FileType,
    SupervisorInfo,
    Text,
)


def text_to_wire(text: Text) -> str | dict[str, str]:
    """A string when it is UTF-8, else {"b64": …}; surrogate escapes in a str stand for their bytes."""
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return {"b64": b64encode(raw).decode()}


def text_from_wire(value: Any) -> Text:
    """Inverse of `text_to_wire`; bytes only when they are not UTF-8."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and isinstance(value.get("b64"), str):
        return b64decode(value["b64"])
    raise ProtocolError(f"expected a text, got {value!r:.80}")


def spec_to_wire(spec: ExecSpec, exec_id: str) -> dict[str, Any]:
    """The payload of EXEC. Raises ValueError for what can never run (the daemon's callers are not trusted)."""
    if not spec.argv or not spec.argv[0]:
        raise ValueError("argv must name a program")
    timeout = spec.timeout_seconds
    if timeout is not None and not (timeout > 0 and math.isfinite(timeout)):
        raise ValueError(f"timeout_seconds must be above 0 and finite, got {timeout}")
    if spec.max_output_bytes < 0:
        raise ValueError(f"max_output_bytes must not be negative, got {spec.max_output_bytes}")
    for text in (*spec.argv, spec.cwd):
        if ("\0" if isinstance(text, str) else b"\0") in text:  # type: ignore[operator]
            raise ValueError("argv and cwd must not hold NUL")
    return {
        "exec_id": exec_id,
        "argv": [text_to_wire(a) for a in spec.argv],
        "cwd": text_to_wire(spec.cwd),
        "env": dict(spec.env),
        "stdin": spec.stdin,
        "uid": spec.uid,
        "gid": spec.gid,
        "timeout_seconds": timeout,
        "max_output_bytes": spec.max_output_bytes,
        "admin": spec.admin,
    }


def result_from_wire(value: dict[str, Any]) -> ExecResult:
    """The payload of EXITED."""
    try:
        return ExecResult(**value)
    except TypeError as error:
        raise ProtocolError(f"EXITED: {error}") from error


def exec_info_from_wire(value: dict[str, Any]) -> ExecInfo:
    """One entry of READY's or LIST_EXECS' execs."""
    result = value["result"]
    return ExecInfo(
        exec_id=value["exec_id"],
        stream=value["stream"],
        pid=value["pid"],
        stdout_total=value["stdout_total"],
        stderr_total=value["stderr_total"],
        stdin_received=value["stdin_received"],
        stdin=value.get("stdin", True),
        max_output_bytes=value["max_output_bytes"],
        result=None if result is None else result_from_wire(result),
    )


def info_from_wire(value: dict[str, Any]) -> SupervisorInfo:
    """The payload of READY."""
    return SupervisorInfo(
        protocol=value["protocol"],
        pid=value["pid"],
        boot_id=value["boot_id"],
        assigned=value["assigned"],
        next_stream=value["next_stream"],
        execs=tuple(exec_info_from_wire(e) for e in value["execs"]),
    )


def stat_from_wire(value: dict[str, Any]) -> FileStat:
    """A stat reply."""
    target = value.get("target")
    if value["type"] not in get_args(FileType):
        raise ProtocolError(f"file type {value['type']!r:.80}")
    return FileStat(
        type=cast(FileType, value["type"]),
        mode=int(value["mode"]),
        size=int(value["size"]),
        uid=int(value["uid"]),
        gid=int(value["gid"]),
        mtime_ns=int(value["mtime_ns"]),
        target=None if target is None else text_from_wire(target),
    )


def entry_from_wire(value: dict[str, Any]) -> DirEntry:
    """One entry of FILE_ENTRIES."""
    return DirEntry(text_from_wire(value["name"]), stat_from_wire(value["stat"]))


def digest_from_wire(value: dict[str, Any]) -> FileDigest:
    """The reply to a read or write."""
    return FileDigest(int(value["size"]), str(value["sha256"]), int(value["file_size"]))
