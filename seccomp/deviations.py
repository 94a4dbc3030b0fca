"""Every difference between the required list and the profile in use, with its need and why it is harmless.

Owns reasons, not files: `generate.py` turns these tables into JSON. Two threats set the measure for
"harmless": the agent is uid 1000 with no capability and no-new-privileges, and under gVisor every call here
is served by the sentry in user space, never by the host kernel.

Needs were measured with strace over the stacks' toolchains; "fails without it" means that leaving the one
name out made that workload fail visibly.
"""

from typing import NamedTuple


class Addition(NamedTuple):
    """One group of calls allowed beyond the required list."""

    names: tuple[str, ...]
    needed_by: str
    """The workload that calls them, and whether it fails without them."""
    harmless_because: str


ADDITIONS: tuple[Addition, ...] = (
    Addition(
        ("umask",),
        "gcc, rustc and cargo set it before writing a program; without it their output cannot be executed",
        "changes the default mode of the caller's own new files",
    ),
    Addition(
        ("utimensat", "utime", "utimes", "futimesat"),
        "touch, tar, node, Python's shutil and os.utime fail without utimensat; the others are its older forms",
        "sets times of files the caller owns",
    ),
    Addition(
        ("symlink", "symlinkat"),
        "ln, git (else core.symlinks is silently off), Python and node fail without them",
        "a link grants nothing: it is resolved with the caller's rights, and the host never follows one",
    ),
    Addition(
        ("getxattr", "lgetxattr", "fgetxattr", "listxattr", "llistxattr", "flistxattr"),
        "ls -l prints an error and Python's shutil.copystat fails without them",
        "reads attributes of files the caller can read",
    ),
    Addition(
        ("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr"),
        "install -m and cp -a copy attributes; install fails without fsetxattr",
        "only user.* is writable without capabilities; trusted.* and security.* are refused by the kernel",
    ),
    Addition(
        ("setresuid", "setresgid", "setuid", "setgid", "setgroups"),
        "make drops to its own ids before a recipe and fails with error 127; PID 1 becomes uid 1000 for the agent",
        "without CAP_SETUID and CAP_SETGID a process can only choose among the ids it already has",
    ),
    Addition(
        ("getresuid", "getresgid", "getgroups", "gettid", "getsid", "getcpu", "getpriority", "getitimer"),
        "Python, Go, id and job control ask who and where they are; Python's unittest fails without getpriority",
        "read-only questions about the caller",
    ),
    Addition(
        ("capget", "capset"),
        "node and git ask for their capabilities; PID 1 lays down its own in the child that becomes the agent",
        "capset can only drop what is held, and the agent holds nothing",
    ),
    Addition(
        (
            "setpriority",
            "sched_setaffinity",
            "sched_getparam",
            "sched_getscheduler",
            "sched_get_priority_max",
            "sched_get_priority_min",
            "setrlimit",
        ),
        "nice, timeout, Go's and Python's thread pools",
        "nice can only rise and limits only fall without capabilities; the cgroup bounds what they share",
    ),
    Addition(
        ("alarm", "setitimer", "timer_create", "timer_settime", "timer_gettime", "timer_getoverrun", "timer_delete"),
        "timeout, sort and Python's unittest signal tests; Python fails without setitimer",
        "timers that signal the caller only; they read clocks and set none",
    ),
    Addition(
        (
            "tkill",
            "rt_sigtimedwait",
            "rt_sigpending",
            "rt_sigqueueinfo",
            "rt_tgsigqueueinfo",
            "restart_syscall",
        ),
        "thread libraries, sigwait, and the kernel's own resumption of an interrupted sleep",
        "signals obey uid checks: PID 1 runs as root and cannot be reached",
    ),
    Addition(
        ("ppoll", "epoll_pwait2", "time", "rseq", "membarrier", "close_range", "openat2", "faccessat2"),
        "the C library, asyncio, Go and make use the newer forms of calls that are already allowed",
        "same objects and the same checks as poll, epoll_wait, gettimeofday, close, openat and faccessat",
    ),
    Addition(
        (
            "fadvise64",
            "fallocate",
            "readahead",
            "sync",
            "syncfs",
            "sync_file_range",
            "splice",
            "tee",
            "creat",
            "lchown",
        ),
        "coreutils, git, databases and linkers; most have fallbacks that are slower",
        "file contents the caller may already write; space is bounded by the quota filesystem",
    ),
    Addition(
        ("mlock", "mlock2", "mlockall", "munlock", "munlockall", "pkey_alloc", "pkey_free"),
        "databases and key handling in language runtimes; node traps if pkey_alloc works and pkey_free does not",
        "bounded by RLIMIT_MEMLOCK and by the container's memory limit",
    ),
    Addition(
        ("semget", "semop", "semtimedop", "semctl", "sendmmsg", "recvmmsg"),
        "PostgreSQL and Python's multiprocessing; resolvers send in batches",
        "System V semaphores live in the sandbox's own IPC namespace; sockets reach loopback only",
    ),
)

SENTRY_DENIES: tuple[Addition, ...] = (
    Addition(
        ("clock_settime", "settimeofday", "adjtimex"),
        "detection: a call refused by the filter never reaches the runtime's trace points, so nobody would know",
        "the sentry answers EPERM, since nobody holds CAP_SYS_TIME; its clock is not the host's",
    ),
    Addition(
        ("mount", "umount2", "pivot_root"),
        "detection, as above: the attempt is reported with its errno",
        "the sentry answers EPERM without CAP_SYS_ADMIN, and no user namespace that would grant it can be made",
    ),
)
"""Required to be denied and recorded. The filter lets them through so that the sentry does both."""

NAMESPACE_FLAGS = {
    "CLONE_NEWNS": 0x00020000,
    "CLONE_NEWCGROUP": 0x02000000,
    "CLONE_NEWUTS": 0x04000000,
    "CLONE_NEWIPC": 0x08000000,
    "CLONE_NEWUSER": 0x10000000,
    "CLONE_NEWPID": 0x20000000,
    "CLONE_NEWNET": 0x40000000,
}
"""`clone` is allowed only with none of these: the required list allows it unfiltered, which under runc hands
out a user namespace with every capability on the host's kernel."""

ABSENT_BY_TRACE = ("clone3",)
"""Answered with ENOSYS, so that C libraries fall back to `clone`, whose flags a filter can read (`clone3`
passes them in memory). runsc ignores `errnoRet`; the TRACE action without a tracer is what gives ENOSYS in
runsc and in runc."""

KILLED = ("ptrace",)
"""Kills the caller. An ERRNO here would be invisible to the trace points, and the sentry itself would allow
the call; a death by SIGSYS is reported as the process's exit status 31. runsc knows only the action that kills
the calling thread: one thread of many dies alone, denied but unreported (no trace point tells a thread's end)."""

# fmt: off
NEVER = (
    "unshare", "setns", "chroot", "process_vm_readv", "process_vm_writev", "bpf", "perf_event_open",
    "keyctl", "add_key", "request_key", "io_uring_setup", "io_uring_enter", "io_uring_register",
    "userfaultfd", "open_by_handle_at", "name_to_handle_at", "init_module", "finit_module",
    "delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff", "fsopen",
    "fsmount", "fsconfig", "fspick", "move_mount", "open_tree", "mount_setattr", "mknod", "mknodat",
    "personality", "quotactl", "acct", "sethostname", "setdomainname", "iopl", "ioperm", "syslog",
    "vhangup", "lookup_dcookie", "kcmp", "pidfd_getfd",
)
# fmt: on
"""Must stay out, whoever extends the table: each opens a namespace, another process, a device or the kernel
itself."""
