"""How an attempt ended and whose fault it was. The one place that decides; pure.

Evidence comes from outside the sandbox only. The order of causes, first match wins:

 1. no evidence at all, or the container at the end is not the one claimed: VOIDED.
 2. an operator's cancellation was first: CANCELLED. Nobody is scored, so nothing else matters.
 3. memory ran out: OOM_KILLED. It outranks a platform fault, which may only be its echo (the kernel may kill the
    gofer first), and it outranks time limit and submission, even one that came before we had ended the rest. Only a
    sandbox that lived on until the platform gave it up survived its OOM.
 4. the platform says that it failed, or no cause was noted: VOIDED.
 5. the sandbox died without an order of ours: a panic log or a crash's exit is CRASHED; SIGKILL without OOM evidence
    and without a signal of ours came from the platform: VOIDED.
 6. what remains was ordered: TIMED_OUT before SUBMITTED.
 7. an end that is to be judged without a workspace to judge: VOIDED.

VOIDED if and only if the platform is at fault or evidence is missing. No branch that voids looks at anything that an
agent can bring about: it can crash the runtime (CRASHED), run out of memory or time, but not send a SIGKILL from
outside nor take the evidence away.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from formats.record import EXIT_REASONS, Fault, Flag, KilledBy, Outcome
from formats.sizes import show_size

SIGKILL_EXIT = 137
PANIC_EXIT = 2
# Ends by a signal that only the host can send to PID 1 (TERM, HUP, INT, QUIT): guests reach PID 1 with none.
HOST_SIGNAL_EXITS = frozenset({129, 130, 131, 143})
TIME_FEEDBACK = "Time limit reached. Submission scored on current state."
SUBMIT_REASONS = frozenset({"submit"})
TIMEOUT_REASONS = frozenset({"soft_timeout", "hard_timeout"})
CANCEL_REASONS = frozenset({"cancel"})


class Cause(Enum):
    """What ended an attempt first."""

    UNKNOWN = "unknown"
    SUBMIT = "submit"
    TIME_LIMIT = "time_limit"
    CANCEL = "cancel"
    SANDBOX_DIED = "sandbox_died"
    PLATFORM = "platform"


@dataclass(frozen=True, kw_only=True)
class Signal:
    """A signal of ours: its name (SIGTERM …) and why it was sent."""

    name: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What was observed. `container_exit_code` is None when the end was not seen; `oom_kill_count` when unreadable."""

    cause: Cause
    container_exit_code: int | None = 0
    oom_event: bool = False
    oom_kill_count: int | None = 0
    signals: tuple[Signal, ...] = ()
    runtime_panic: bool = False
    pids_exhausted: bool = False
    memory_near_limit: bool = False
    disk_full: bool = False
    workspace_extracted: bool = True
    workspace_error: str = ""
    identity_confirmed: bool = True
    platform_fault: str = ""
    lost: bool = False
    submitted: bool = False
    time_limit_reached: bool = False
    blocked_syscalls: int = 0
    database_unavailable: bool = False
    telemetry_incomplete: bool = False

    @property
    def oom_killed(self) -> bool:
        """Whether memory ended the sandbox, or would have if the agent's last act had not come in between.

        The kernel takes the sentry or the process that held the most, by chance, and the daemon then ends what is
        left: an order that was quicker than that changes nothing. Where the platform gave up, a death must be seen.
        """
        seen = self.oom_event or (self.oom_kill_count or 0) > 0
        died = self.container_exit_code != 0 if self.container_exit_code is not None else self._died
        return seen and (died or self.cause in (Cause.SUBMIT, Cause.TIME_LIMIT))

    @property
    def _died(self) -> bool:
        return self.cause is Cause.SANDBOX_DIED

    @property
    def ended_by_platform(self) -> bool:
        """Whether the platform gave up first and then killed a sandbox that still lived, whatever its OOM count."""
        return self.cause is Cause.PLATFORM and self.sent("SIGKILL")

    def sent(self, name: str) -> bool:
        """Whether we sent this signal."""
        return any(signal.name == name for signal in self.signals)

    def sent_for(self, reasons: frozenset[str]) -> bool:
        """Whether we sent any signal for one of these reasons."""
        return any(signal.reason in reasons for signal in self.signals)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The decision. `agent_feedback` is what the agent is told, None where the specification has no sentence."""

    outcome: Outcome
    fault: Fault
    reason: str
    flags: tuple[Flag, ...] = ()
    exit_reason: str
    exit_code: int | None = None
    killed_by: KilledBy | None = None
    agent_feedback: str | None = None

    @property
    def judged(self) -> bool:
        """Whether judges look at what is left."""
        return self.outcome not in (Outcome.VOIDED, Outcome.CANCELLED)


def classify(evidence: Evidence | None, *, memory_limit_bytes: int) -> Verdict:
    """Decide how an attempt ended. Total: every evidence has exactly one verdict.

    `memory_limit_bytes` is the attempt's real limit, named in the feedback of an OOM_KILLED attempt; 0 when nobody
    knows it.
    """
    outcome, fault, reason = _decide(evidence)
    if evidence is None:
        return Verdict(outcome=outcome, fault=fault, reason=reason, exit_reason=EXIT_REASONS[outcome])
    return Verdict(
        outcome=outcome,
        fault=fault,
        reason=reason,
        flags=flags_of(evidence),
        exit_reason=EXIT_REASONS[outcome],
        exit_code=exit_code_of(evidence, outcome),
        killed_by=killed_by(evidence),
        agent_feedback=_feedback(outcome, memory_limit_bytes),
    )


def flags_of(evidence: Evidence) -> tuple[Flag, ...]:
    """The conditions seen beside the outcome, sorted."""
    seen = {
        Flag.DISK_FULL: evidence.disk_full,
        Flag.PIDS_EXHAUSTED: evidence.pids_exhausted,
        Flag.DATABASE_UNAVAILABLE: evidence.database_unavailable,
        Flag.ESCAPE_ATTEMPT: evidence.blocked_syscalls > 0,
        Flag.TELEMETRY_INCOMPLETE: evidence.telemetry_incomplete,
    }
    return tuple(sorted(flag for flag, present in seen.items() if present))


def exit_code_of(evidence: Evidence, outcome: Outcome) -> int | None:
    """0 after an end that we ordered (`killed_by` says what we sent), otherwise what the container said."""
    ordered = outcome in (Outcome.SUBMITTED, Outcome.TIMED_OUT, Outcome.CANCELLED)
    if ordered and evidence.container_exit_code is not None:
        return 0
    return evidence.container_exit_code


def killed_by(evidence: Evidence) -> KilledBy | None:
    """The last signal that we sent, None when we sent none."""
    last = evidence.signals[-1] if evidence.signals else None
    return KilledBy(signal=last.name, reason=last.reason) if last is not None else None


def _decide(evidence: Evidence | None) -> tuple[Outcome, Fault, str]:
    if evidence is None:
        return _void("the evidence of the end is missing")
    if not evidence.identity_confirmed:
        return _void("the container at the end is not the one that was claimed")
    if evidence.cause is Cause.CANCEL:
        return Outcome.CANCELLED, Fault.NONE, "cancelled by an operator"
    decided = _ended(evidence)
    if decided[0] in (Outcome.VOIDED, Outcome.CANCELLED) or evidence.workspace_extracted:
        return decided
    error = evidence.workspace_error or "no reason given"
    return _void(f"the workspace could not be read after the end ({decided[0]}): {error}")


def _ended(evidence: Evidence) -> tuple[Outcome, Fault, str]:
    if evidence.oom_killed and not evidence.ended_by_platform:
        return Outcome.OOM_KILLED, Fault.AGENT, "the sandbox exceeded its memory limit"
    if evidence.platform_fault:
        return _void(f"platform fault: {evidence.platform_fault}")
    if evidence.lost or evidence.cause is Cause.PLATFORM:
        return _void("the platform lost the sandbox")
    match evidence.cause:
        case Cause.UNKNOWN:
            return _void("the evidence names no cause")
        case Cause.SANDBOX_DIED:
            return _died(evidence)
        case Cause.TIME_LIMIT | Cause.SUBMIT:
            return _ordered(evidence)
        case _:  # CANCEL and PLATFORM were answered above
            raise AssertionError(evidence.cause)


def _died(evidence: Evidence) -> tuple[Outcome, Fault, str]:
    """The sandbox ended without an order of ours, not of memory."""
    if evidence.runtime_panic:
        return _crash(evidence, "the sandbox runtime panicked")
    code = evidence.container_exit_code
    if code is None:
        return _void("the container's end was not observed")
    if code == SIGKILL_EXIT:
        if not evidence.sent("SIGKILL"):
            return _void("the sandbox was killed from outside, not by us and not for memory")
        return _killed_by_us(evidence)
    if code in HOST_SIGNAL_EXITS:
        if not evidence.signals:
            return _void(f"the sandbox was ended from outside (exit code {code}), not by us")
        return _killed_by_us(evidence)
    if code == 0 and (evidence.time_limit_reached or evidence.submitted):
        return _ordered(evidence)
    return _crash(evidence, f"the sandbox ended by itself (exit code {code})")


def _killed_by_us(evidence: Evidence) -> tuple[Outcome, Fault, str]:
    """Our own signal ended it although no order was noted first: the signal's reason is the order."""
    if evidence.sent_for(CANCEL_REASONS):
        return Outcome.CANCELLED, Fault.NONE, "cancelled by an operator"
    if evidence.time_limit_reached or evidence.submitted:
        return _ordered(evidence)
    if evidence.sent_for(TIMEOUT_REASONS):
        return Outcome.TIMED_OUT, Fault.AGENT, "the time limit was reached"
    if evidence.sent_for(SUBMIT_REASONS):
        return Outcome.SUBMITTED, Fault.NONE, "the agent submitted"
    return _void("the platform killed the sandbox without an order to end the attempt")


def _ordered(evidence: Evidence) -> tuple[Outcome, Fault, str]:
    """An end by submission or by time, whose container must have been seen to end and not by a foreign SIGKILL."""
    code = evidence.container_exit_code
    if code is None:
        return _void("the container's end was not observed")
    if code == SIGKILL_EXIT and not evidence.sent("SIGKILL"):
        return _void("the sandbox was killed from outside, not by us and not for memory")
    if evidence.cause is Cause.TIME_LIMIT or evidence.time_limit_reached:
        return Outcome.TIMED_OUT, Fault.AGENT, "the time limit was reached"
    return Outcome.SUBMITTED, Fault.NONE, "the agent submitted"


def _crash(evidence: Evidence, what: str) -> tuple[Outcome, Fault, str]:
    """A crash is the agent's fault where it had used up processes or memory; otherwise nobody can tell."""
    if evidence.pids_exhausted:
        return Outcome.CRASHED, Fault.AGENT, f"{what} after the agent used up its processes"
    if evidence.memory_near_limit:
        return Outcome.CRASHED, Fault.AGENT, f"{what} with memory at its limit"
    return Outcome.CRASHED, Fault.UNKNOWN, what


def _void(reason: str) -> tuple[Outcome, Fault, str]:
    return Outcome.VOIDED, Fault.PLATFORM, reason


def _feedback(outcome: Outcome, memory_limit_bytes: int) -> str | None:
    match outcome:
        case Outcome.OOM_KILLED:
            limit = f"the {show_size(memory_limit_bytes)}" if memory_limit_bytes else "its"
            return f"Your submission exceeded {limit} memory limit."
        case Outcome.TIMED_OUT:
            return TIME_FEEDBACK
        case _:
            return None
