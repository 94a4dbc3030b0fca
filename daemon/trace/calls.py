"""System calls that the trace asks for by number: signals, and what the sentry denies. Tables and pure readings.

Numbers are x86-64's; the sentry runs no other ABI.
"""

from __future__ import annotations

import errno
from typing import NamedTuple

# Denied to everybody in a sandbox, by the sentry itself, so that the attempt is seen. The seccomp profile lets them
# through to it; every other forbidden call stops at the filter, unseen.
DENIED = {
    155: "pivot_root",
    159: "adjtimex",
    164: "settimeofday",
    165: "mount",
    166: "umount2",
    227: "clock_settime",
}
# The filter kills whoever calls it: it shows as a death by SIGSYS.
KILLED_CALL = "ptrace"
KILL, RT_SIGQUEUEINFO, TKILL, TGKILL, RT_TGSIGQUEUEINFO = 62, 129, 200, 234, 297
SIGNALS = (KILL, RT_SIGQUEUEINFO, TKILL, TGKILL, RT_TGSIGQUEUEINFO)
SIGSYS, MAX_SIGNAL = 31, 64
# Calls that make a process or a thread (clone, fork, vfork; clone3 stops at the filter). One that fails with EAGAIN met
# the limit of processes: the only sign of it, for dead children that nobody has waited for count as well.
MAKING = frozenset({56, 57, 58})
# Their ends say no more than that the arguments were readable: whether the program runs is decided later.
EXECUTING = frozenset({59, 322})
# The first call of every C library and of Go's runtime in a new program: it sets the main thread's storage. Threads
# get theirs from clone.
ARCH_PRCTL, ARCH_SET_FS = 158, 0x1002
# What a runtime sends to its own threads all the time: Go's pre-emption (SIGURG), the C library's cancel and setxid.
THREAD_SIGNALS = frozenset({23, 32, 33})


class Sent(NamedTuple):
    """A signal on its way. `target` as in kill(2): a process, -group, 0 for the sender's group, -1 for everybody."""

    target: int
    number: int


def signal_of(sysno: int, arguments: tuple[int, int, int], sender: int) -> Sent | None:
    """The signal that a call sends; None for a probe (0), a number that is none, and a runtime's own threads."""
    first, second, third = (_signed(value) for value in arguments)
    number = third if sysno in (TGKILL, RT_TGSIGQUEUEINFO) else second
    if not 1 <= number <= MAX_SIGNAL:
        return None
    if sysno in (TKILL, TGKILL) and number in THREAD_SIGNALS and (first == sender or sysno == TKILL):
        return None
    return Sent(first, number)


def _signed(register: int) -> int:
    """The int that a call reads from a 64-bit register."""
    low = register & 0xFFFF_FFFF
    return low - (1 << 32) if low & 0x8000_0000 else low


def errno_name(number: int) -> str:
    """EPERM, ….; a number that has no name as E and the number."""
    return errno.errorcode.get(number, f"E{number}")
