"""The processes of one sandbox, as its sentry tells them: who made whom, what each ran, how each ended.

Pure: points in, facts out. Left out: threads, PID 1, the helpers that PID 1 starts for itself, and its starts of
programs that do not exist. A process that never ran a program of its own is told as `forked` when it ends, under its
maker's command line.

A hostile sentry can lie about its own sandbox and make this grow to MAX_PROCESSES and MAX_ENDED, no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from errno import EAGAIN

from daemon.trace.calls import ARCH_PRCTL, DENIED, EXECUTING, KILLED_CALL, MAKING, SIGNALS, SIGSYS, errno_name
from daemon.trace.facts import Denied, Fact, Process, Ran, Refused, Tool, Unnamed, command_line, process_event
from daemon.trace.points import INIT, Attempted, Called, Cloned, Executed, Exited, Point, Who
from daemon.trace.signals import Signals, explained
from daemon.trace.starting import attempted, called
from formats import event

MAX_PROCESSES = 40_000
# As many ids as a sentry ever gives (gVisor, kernel.TasksLimit).
MAX_ENDED = 1 << 16
CLONE_PARENT, CLONE_THREAD = 0x8000, 0x10000
TOOLS = b"/workspace/tools/bin/"
HELPER_MODES = frozenset({b"file-worker", b"-version"})
SIGKILL = 9
# How a child of PID 1's ends when the program that it should become cannot be run (Go's syscall.forkExec).
FAILED_START = 253 << 8
# From a fork of PID 1's to its execve it is milliseconds; a second on a host that is very busy.
START_NS = 1_000_000_000


class Tree:
    """State of one trace. `clock_ns` is our wall clock."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._processes: dict[int, Process] = {}
        self._signals = Signals(self._processes, clock_ns)
        # Who ended and was not made anew: the end of a child that nobody waits for is told again with each new parent.
        self._ended: dict[int, None] = {}
        self.ignored = 0

    def __len__(self) -> int:
        return len(self._processes)

    def feed(self, point: Point) -> list[Fact]:
        """What one point means."""
        match point:
            case Cloned():
                return self._cloned(point)
            case Executed():
                return self._executed(point)
            case Exited():
                return self._exited(point)
            case Attempted():
                attempted(self._processes.get(point.who.pid), point)
            case Called():
                return self._called(point)
        return []

    def seed(self, pid: int, ppid: int, argv: list[str]) -> None:
        """A process that was there before the trace began (again). Says nothing."""
        if pid == INIT or pid in self._processes:
            return
        words = [word.encode() for word in argv]
        process = self._new(pid, ppid, ppid, command_line(words)[0], 0)
        process.programs = 1
        process.helper = ppid == INIT and _helper_arguments(words)

    def sampled(self, pid: int, cpu_ms: float | None, rss: int | None) -> None:
        """A look at a living process."""
        process = self._processes.get(pid)
        if process is not None:
            process.cpu_ms = process.cpu_ms if cpu_ms is None else cpu_ms
            process.rss = process.rss if rss is None else max(rss, process.rss or 0)

    def programs(self) -> dict[int, int]:
        """How many programs each living process was told to have run; helpers left out."""
        return {process.pid: process.programs for process in self._processes.values() if not process.helper}

    def maker(self, pid: int) -> int:
        """Who made a living process; 0 for one that is not known."""
        process = self._processes.get(pid)
        return 0 if process is None else process.maker

    def path(self, pid: int) -> str:
        """The file that a living process was told to run last; empty when that is not known."""
        process = self._processes.get(pid)
        return "" if process is None else process.path

    def found(self, pid: int, argv: Iterable[str]) -> list[Fact]:
        """A living process runs a program that nobody told of."""
        process = self._processes[pid]
        process.programs += 1
        process.path = ""
        process.command_line = command_line(word.encode() for word in argv)[0]
        fields = self._fields("process_spawn", process, 0)
        fields["inferred"] = True
        return [fields]

    def named(self, pid: int, argv: Iterable[str]) -> None:
        """A look found what a program without a name was called."""
        process = self._processes.get(pid)
        if process is not None and process.unnamed:
            process.unnamed = False
            process.command_line = command_line(word.encode() for word in argv)[0]

    def finish(self) -> list[Fact]:
        """The sandbox is gone: whoever still lived was killed with it."""
        facts: list[Fact] = []
        for process in list(self._processes.values()):
            facts += self._end(process, SIGKILL, 0, inferred=True)
        return facts

    def _cloned(self, point: Cloned) -> list[Fact]:
        who = point.who
        if point.flags & CLONE_THREAD or point.pid in (who.pid, INIT):
            return []
        maker = self._processes.get(who.pid)
        ppid = who.ppid if point.flags & CLONE_PARENT else who.pid
        line = "" if maker is None else maker.command_line
        facts: list[Fact] = []
        if (old := self._processes.get(point.pid)) is not None:  # its end was lost
            facts = self._end(old, SIGKILL, who.time_ns, inferred=True)
        self._new(point.pid, ppid, who.pid, line, who.time_ns)
        return facts

    def _new(self, pid: int, ppid: int, maker: int, line: str, guest_ns: int) -> Process:
        process = Process(pid, ppid, maker, line, guest_ns)
        self._ended.pop(pid, None)
        if len(self._processes) < MAX_PROCESSES:
            self._processes[pid] = process
        else:
            self.ignored += 1
        return process

    def _known(self, who: Who) -> Process:
        """The process, or a new one whose beginning was not told."""
        return self._processes.get(who.pid) or self._new(who.pid, who.ppid, who.ppid, "", who.time_ns)

    def _executed(self, point: Executed) -> list[Fact]:
        who = point.who
        if who.pid == INIT:
            return []
        process = self._known(who)
        if process.maker == INIT and not process.programs and point.bare and _helper_arguments(point.argv):
            process.helper = True
        process.programs += 1
        process.begun, process.unnamed = None, False
        process.path = point.path[: event.COMMAND_LINE_BYTES].decode("utf-8", "replace")
        process.command_line, digest = command_line(point.argv)
        if process.helper:
            return []
        self._note_tool(process, point.path, who.time_ns)
        fields = self._fields("process_spawn", process, who.time_ns)
        fields["command_line_sha256"] = digest
        return [fields]

    def _untold(self, process: Process, path: bytes, argv: tuple[bytes, ...] | None, guest_ns: int) -> list[Fact]:
        """A program runs whose execve the sentry could not send."""
        process.programs += 1
        # The name may be a link's: a look must not compare it.
        process.path, process.unnamed = "", argv is None
        process.command_line, digest = ("", None) if argv is None else command_line(argv)
        self._note_tool(process, path, guest_ns)
        fields = self._fields("process_spawn", process, guest_ns)
        fields["inferred"] = True
        if digest is None:
            fields["unnamed"] = True
            return [fields, Unnamed(process.pid)]
        fields["command_line_sha256"] = digest
        return [fields]

    def _note_tool(self, process: Process, path: bytes, guest_ns: int) -> None:
        if path.startswith(TOOLS):
            name = path.rpartition(b"/")[2].decode("utf-8", "replace")
            process.tools.append(Tool(name, process.command_line, self._clock_ns(), guest_ns))

    def _exited(self, point: Exited) -> list[Fact]:
        if point.who.pid == INIT or point.who.pid in self._ended:
            return []
        return self._end(self._known(point.who), point.status, point.who.time_ns)

    def _end(self, process: Process, status: int, guest_ns: int, *, inferred: bool = False) -> list[Fact]:
        self._processes.pop(process.pid, None)
        if len(self._ended) >= MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        self._ended[process.pid] = None
        if process.helper or (process.maker == INIT and not process.programs and _unborn(process, status, guest_ns)):
            return []
        facts: list[Fact] = []
        if not process.programs:
            born = self._fields("process_spawn", process, process.guest_ns)
            born["forked"] = True
            facts.append(born)
        number = status & 0x7F
        if number and not inferred and not explained(process, number, guest_ns):
            # Nobody sent it by a call that we saw: the kernel did, or it went to a group.
            delivered = self._fields("signal_delivery", process, guest_ns)
            delivered["signal"], delivered["inferred"] = number, True
            if number == SIGSYS:
                facts.append(Denied(KILLED_CALL, "killed", process.pid, process.command_line, guest_ns, True))
            facts.append(delivered)
        ended = self._fields("process_exit", process, guest_ns)
        ended["cpu_time_ms"], ended["peak_rss_bytes"] = process.cpu_ms, process.rss
        if number:
            ended["signal"] = number
        else:
            ended["exit_code"] = status >> 8
        if inferred:
            ended["inferred"] = True
        facts.append(ended)
        for tool in process.tools:
            length = max(0, guest_ns - tool.guest_ns)
            ran = (tool.name, process.pid, process.ppid, tool.command_line, tool.start_ns, length, status)
            facts.append(Ran(*ran))
        return facts

    def _called(self, point: Called) -> list[Fact]:
        if point.sysno in MAKING:
            refused = point.ended and point.errno == EAGAIN and point.who.pid != INIT
            return [Refused(point.who.pid)] if refused else []
        if point.sysno in SIGNALS:
            return [*self._signals.called(point)]
        if point.sysno in EXECUTING or point.sysno == ARCH_PRCTL:
            process = self._processes.get(point.who.pid)
            begun = called(process, point)
            return [] if process is None or begun is None else self._untold(process, *begun, point.who.time_ns)
        name = DENIED.get(point.sysno)
        if name is None or not point.ended or not point.errno or point.who.pid == INIT:
            return []
        process = self._processes.get(point.who.pid)
        line = "" if process is None else process.command_line
        return [Denied(name, errno_name(point.errno), point.who.pid, line, point.who.time_ns, False)]

    def _fields(self, what: event.ProcessEvent, process: Process, guest_ns: int) -> event.Process:
        return process_event(what, process, self._clock_ns(), guest_ns)


def _unborn(process: Process, status: int, guest_ns: int) -> bool:
    """Whether a child of PID 1's ended on its way to its program: that failed, or a signal came first."""
    return status == FAILED_START or (status & 0x7F != 0 and guest_ns - process.guest_ns < START_NS)


def _helper_arguments(argv: Iterable[bytes]) -> bool:
    words = tuple(argv)
    return len(words) == 2 and words[1] in HELPER_MODES
