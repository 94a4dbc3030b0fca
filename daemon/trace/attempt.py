"""One attempt's side of the trace: facts of its sandbox into its spool, counted; its end.

Outlives the connection to its sentry: after a restart of the sink another one takes it up, and what is missing is a
gap record. Owns the counts; the spool is daemon.telemetry's.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gauntlet.telemetry.v1 import trace_service_pb2 as pb

from daemon.telemetry.recorder import Recorder
from daemon.telemetry.spool import sync_directory
from daemon.trace.escapes import EscapeCounter
from daemon.trace.facts import Denied, Fact, Ran, Refused, Unnamed
from daemon.trace.news import News
from formats import event

KINDS = ("process", "escape_attempt")
FINISHED_FILE = "trace_finished.json"
# Is there once the sandbox's limit of processes refused one.
REFUSED_FILE = "trace_pids_refused"
MAX_TOOLS = 10_000
# Reasons of gap records.
DROPPED, LOST, MALFORMED, TOOLS_LOST = "trace_dropped", "trace_session_lost", "trace_malformed", "trace_tools"
UNNAMED = "trace_unnamed"


class TracedAttempt:
    """An attempt whose sandbox is traced, from its binding to its end."""

    def __init__(self, attempt_id: str, recorder: Recorder, news: News, clock_ns: Callable[[], int]) -> None:
        """Call `open` next."""
        self.attempt_id = attempt_id
        self.dropped = 0
        self.lost = False
        self._recorder = recorder
        self.news = news
        self._clock_ns = clock_ns
        self._escapes = EscapeCounter()
        self._signals = 0
        self._tools = 0
        self._refused = False
        self._refused_file = Path()

    async def open(self, spool: Path) -> None:
        """Open the streams; what an earlier sink spooled counts."""
        self._refused_file = spool / self.attempt_id / REFUSED_FILE
        await asyncio.to_thread(self._count, spool / self.attempt_id)  # at once: a claim waits for it
        await self._recorder.open(self.attempt_id)

    def _count(self, directory: Path) -> None:
        self._refused = self._refused_file.exists()
        self._escapes = EscapeCounter(*count_escapes(directory / "escape_attempt.jsonl"))
        self._signals, self.dropped = count_processes(directory / "process.jsonl")

    async def record(self, facts: Sequence[Fact]) -> None:
        """Spool what happened; waits while the buffer is full."""
        processes: list[event.Process] = []
        escapes: list[event.EscapeAttempt] = []
        unnamed = 0
        for fact in facts:
            if isinstance(fact, Denied):
                escapes += self._escapes.add(fact, self._clock_ns())
            elif isinstance(fact, Ran):
                self._ran(fact)
            elif isinstance(fact, Refused):
                await self._note_refusal()
            elif isinstance(fact, Unnamed):
                unnamed += 1
            else:
                processes.append(fact)
        await self._recorder.record_all(self.attempt_id, "process", processes)
        if unnamed:
            self.lose(unnamed, UNNAMED)
        await self._tell(escapes)

    async def tick(self) -> None:
        """Some time has passed."""
        await self._tell(self._escapes.due(self._clock_ns()))

    async def _tell(self, events: Sequence[event.EscapeAttempt]) -> None:
        if events:
            await self._recorder.record_all(self.attempt_id, "escape_attempt", events)

    async def _note_refusal(self) -> None:
        """Keep it where the next sink finds it: the first one of an attempt is all that matters."""
        if not self._refused:
            self._refused = True
            await asyncio.to_thread(self._refused_file.touch)

    def _ran(self, fact: Ran) -> None:
        if self._tools >= MAX_TOOLS:
            self.lose(1, TOOLS_LOST)
            return
        self._tools += 1
        self.news.tool(
            pb.ToolRun(
                attempt_id=self.attempt_id,
                number=self._tools,
                name=fact.name,
                pid=fact.pid,
                ppid=fact.ppid,
                command_line=fact.command_line,
                start_time_ns=fact.start_ns,
                duration_ns=fact.duration_ns,
                exit_status=fact.status,
            )
        )

    def lose(self, count: int | None, reason: str) -> None:
        """Say a loss. Which kind it was nobody knows; the numbers are those of process events."""
        self.lost = True
        self._recorder.record_loss(self.attempt_id, "process", count, reason)

    async def signals(self, ledger: Sequence[pb.PlatformSignal]) -> None:
        """Record the platform's own signals that were not recorded yet; `ledger` is all of them."""
        fresh = ledger[self._signals :]
        self._signals = max(self._signals, len(ledger))
        for sent in fresh:
            fields: event.Process = {
                "timestamp_ns": self._clock_ns(),
                "event": "signal_delivery",
                "pid": -1,
                "ppid": None,
                "command_line": "",
                "exit_code": None,
                "cpu_time_ms": None,
                "peak_rss_bytes": None,
                "signal": signal_number(sent.name),
                "reason": sent.reason[:128] or "platform",
            }
            await self._recorder.record(self.attempt_id, "process", fields)

    async def finish(self, spool: Path) -> pb.FinishResponse:
        """Close the streams; nothing follows. The answer is kept beside the spool, for whoever asks again."""
        await self._tell(self._escapes.flush(self._clock_ns()))
        streams = await self._recorder.close_attempt(self.attempt_id)
        answer = pb.FinishResponse(
            counts=[pb.StreamCount(kind=k, events=s.events, gaps=s.gaps) for k, s in streams.items()],
            blocked_syscalls=self._escapes.total,
            dropped=self.dropped,
            session_lost=self.lost,
            pids_refused=self._refused,
        )
        await asyncio.to_thread(_write, spool / self.attempt_id / FINISHED_FILE, answer.SerializeToString())
        answer.tools.extend(self.news.unacknowledged(self.attempt_id))
        return answer


def finished(spool: Path, attempt_id: str) -> pb.FinishResponse | None:
    """The answer that an attempt's end was given before."""
    try:
        return pb.FinishResponse.FromString((spool / attempt_id / FINISHED_FILE).read_bytes())
    except FileNotFoundError:
        return None


def remove_spool(spool: Path, attempt_id: str) -> None:
    """Remove what the sink keeps of an attempt; the directory too, unless a daemon keeps something in it."""
    directory = spool / attempt_id
    for name in (FINISHED_FILE, REFUSED_FILE, *(f"{kind}.{suffix}" for kind in KINDS for suffix in ("jsonl", "mark"))):
        (directory / name).unlink(missing_ok=True)
    if not any(directory.iterdir()):
        directory.rmdir()


def count_escapes(path: Path) -> tuple[int, int]:
    """Calls and events that a spool file tells."""
    total = told = 0
    for value in _lines(path):
        if "gap" not in value:
            total += value.get("count", 1)
            told += 1
    return total, told


def count_processes(path: Path) -> tuple[int, int]:
    """The platform's signals that a spool file tells, and the undelivered events that its gap records count.

    Above zero dropped ones, an earlier sink knew of a loss.
    """
    signals = dropped = 0
    for value in _lines(path, b'"reason":'):  # a signal's or a gap's
        gap = value.get("gap")
        if gap is None:
            signals += "reason" in value
        elif gap["reason"] == DROPPED and gap["last"] is not None:
            dropped += gap["last"] - gap["first"] + 1
    return signals, dropped


def _lines(path: Path, with_: bytes = b"") -> Iterator[dict[str, Any]]:
    """The whole lines of a spool file that hold `with_`."""
    if path.exists():
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n") and with_ in line:
                    yield json.loads(line)


def signal_number(name: str) -> int:
    """SIGTERM → 15; 0 for a name that is none."""
    return int(signal.Signals[name]) if name in signal.Signals.__members__ else 0


def _write(path: Path, data: bytes) -> None:
    fresh = path.with_name(f".{path.name}.new")
    with fresh.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_directory(path.parent)
