"""What a sandbox's processes do, told by its real sentry: parents, ends, signals, tools, denied calls."""

from __future__ import annotations

import pytest

from tests.support.attempts import run_script
from tests.support.challenge_files import exec_step, make_challenge, write_script
from tests.support.told import ended, gap_free, spawned, told

pytestmark = pytest.mark.docker
FAMILY = """
sleep 71 & victim=$!
(exit 7)
python3 -c 'import os; os.fork() or os._exit(4); os.wait()'
kill -TERM $victim; wait $victim
/workspace/tools/bin/hello there
true | cat
kill -USR1 $$
"""
DENIED = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for _ in range(1200):
    assert libc.mount(b"a", b"/mnt", b"tmpfs", 0, None) == -1
    assert ctypes.get_errno() == 1
"""
PTRACE = "import ctypes; ctypes.CDLL(None).ptrace(0, 0, 0, 0)"
OUTLIVED = f"import os, signal; signal.signal(31, lambda *_: None); os.kill(os.getpid(), 31); {PTRACE}"
SENT = "import subprocess; p = subprocess.Popen(['sleep', '60']); p.send_signal(31); assert p.wait() == -31"
BOMB = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n"


def test_a_family_is_told_with_parents_ends_and_signals(environment, tmp_path):
    script = write_script(tmp_path / "s.jsonl", exec_step("sh", "-c", FAMILY))
    record = run_script(environment, make_challenge(tmp_path / "c"), script)
    lines = told(environment, record["attempt_id"])
    assert gap_free(lines, "process")
    assert len([line for line in lines if "gap" not in line]) == record["sandbox"]["telemetry_events"]
    shell = spawned(lines, "sh -c")
    assert shell["ppid"] == 1
    assert shell["command_line_sha256"].startswith("sha256:")
    death = ended(lines, shell["pid"])
    assert (death["signal"], death["exit_code"], death["ppid"]) == (10, None, 1)

    victim = spawned(lines, "sleep 71")
    assert victim["ppid"] == shell["pid"]
    assert ended(lines, victim["pid"])["signal"] == 15
    signals = [(s["pid"], s["signal"], s.get("sender_pid")) for s in lines if s.get("event") == "signal_delivery"]
    assert (victim["pid"], 15, shell["pid"]) in signals
    assert (shell["pid"], 10, shell["pid"]) in signals

    python = spawned(lines, "python3 -c")
    forks = [line for line in lines if line.get("forked")]
    child = next(fork for fork in forks if fork["ppid"] == python["pid"])
    assert child["command_line"] == python["command_line"]
    assert ended(lines, child["pid"])["exit_code"] == 4
    assert ended(lines, python["pid"])["exit_code"] == 0
    subshell = next(fork for fork in forks if ended(lines, fork["pid"])["exit_code"] == 7)
    assert subshell["ppid"] == shell["pid"]

    assert ended(lines, spawned(lines, "cat")["pid"])["exit_code"] == 0
    assert len([line for line in lines if line.get("event") == "process_spawn"]) == len(
        [line for line in lines if line.get("event") == "process_exit"]
    )
    assert all(line["guest_time_ns"] > 0 for line in lines if line["kind"] == "process" and "reason" not in line)


def test_a_child_that_nobody_waits_for_ends_once(environment, tmp_path):
    """The sentry tells its end again when its parent goes, and once more when PID 1 does."""
    program = (
        "import os, sys\n"
        "for code in (4, 5):\n"
        "    child = os.fork() or os._exit(code)\n"
        "    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)\n"
    )
    script = write_script(tmp_path / "s.jsonl", exec_step("python3", "-c", program))
    record = run_script(environment, make_challenge(tmp_path / "c"), script)
    lines = told(environment, record["attempt_id"], "process")
    python = spawned(lines, "python3 -c")
    ends = [(e["ppid"], e["exit_code"]) for e in lines if e["event"] == "process_exit"]
    assert ends == [(python["pid"], 4), (python["pid"], 5), (1, 0)]
    assert len([e for e in lines if e["event"] == "process_spawn"]) == 3


def test_a_tools_run_is_a_tool_invocation_beside_the_process(environment, tmp_path):
    steps = [exec_step("/workspace/tools/bin/hello"), exec_step("sh", "-c", "/workspace/tools/bin/hello; true")]
    script = write_script(tmp_path / "s.jsonl", *steps)
    record = run_script(environment, make_challenge(tmp_path / "c"), script)
    lines = told(environment, record["attempt_id"])
    tools = [line for line in lines if line["kind"] == "tool_invocation"]
    assert sorted(tool["tool_name"] for tool in tools) == ["exec", "exec", "hello", "hello"]
    assert all(tool["exit_code"] == 0 for tool in tools)
    assert gap_free(lines, "tool_invocation")


def test_the_platforms_own_processes_are_not_told(environment, tmp_path):
    script = write_script(
        tmp_path / "s.jsonl",
        {"tool": "write_file", "path": "challenge/new", "content": "x"},
        {"tool": "read_file", "path": "challenge/new"},
        exec_step("no-such-program"),
    )
    record = run_script(environment, make_challenge(tmp_path / "c"), script)
    lines = told(environment, record["attempt_id"], "process")
    assert [line for line in lines if line["event"] != "signal_delivery"] == []


def test_denied_calls_are_reported_counted_and_flagged(environment, tmp_path):
    script = write_script(
        tmp_path / "s.jsonl", exec_step("python3", "-c", DENIED), exec_step("mount", "-t", "tmpfs", "a", "/mnt")
    )
    record = run_script(environment, make_challenge(tmp_path / "c"), script)
    assert record["outcome"] == "SUBMITTED"
    assert "ESCAPE_ATTEMPT" in record["flags"]
    lines = told(environment, record["attempt_id"])
    escapes = [line for line in lines if line["kind"] == "escape_attempt"]
    assert gap_free(lines, "escape_attempt")
    assert {(e["syscall"], e["result"]) for e in escapes} == {("mount", "EPERM")}
    assert sum(e.get("count", 1) for e in escapes) == record["sandbox"]["blocked_syscalls"] >= 1201
    assert len(escapes) < 200
    assert escapes[0]["command_line"].startswith("python3 -c")


def test_ptrace_is_reported_as_concluded_and_honest_work_is_not(environment, tmp_path):
    challenge = make_challenge(tmp_path / "c")
    killed = run_script(environment, challenge, write_script(tmp_path / "k", exec_step("python3", "-c", PTRACE)))
    honest = run_script(
        environment, challenge, write_script(tmp_path / "h", exec_step("python3", "-m", "pytest", "-q"))
    )
    escapes = told(environment, killed["attempt_id"], "escape_attempt")
    assert [(e["syscall"], e["result"], e["inferred"]) for e in escapes] == [("ptrace", "killed", True)]
    assert killed["flags"] == ["ESCAPE_ATTEMPT"]
    assert honest["flags"] == []
    assert honest["sandbox"]["blocked_syscalls"] == 0
    assert told(environment, honest["attempt_id"], "escape_attempt") == []


def test_a_signal_that_was_outlived_hides_no_ptrace_and_one_that_kills_is_none(environment, tmp_path):
    challenge = make_challenge(tmp_path / "c")
    outlived = run_script(environment, challenge, write_script(tmp_path / "k", exec_step("python3", "-c", OUTLIVED)))
    escapes = told(environment, outlived["attempt_id"], "escape_attempt")
    assert [(e["syscall"], e["result"], e["inferred"]) for e in escapes] == [("ptrace", "killed", True)]
    assert outlived["flags"] == ["ESCAPE_ATTEMPT"]
    sent = run_script(environment, challenge, write_script(tmp_path / "h", exec_step("python3", "-c", SENT)))
    assert told(environment, sent["attempt_id"], "escape_attempt") == []
    assert sent["flags"] == []


def test_a_fork_bomb_is_bounded_and_told_to_its_end(environment, tmp_path):
    challenge = make_challenge(tmp_path / "c", time_limit_seconds=3)
    script = write_script(tmp_path / "s.jsonl", exec_step("python3", "-c", BOMB, timeout_seconds=2))
    record = run_script(environment, challenge, script)
    assert record["fault"] != "PLATFORM"
    lines = told(environment, record["attempt_id"], "process")
    begun = [line["pid"] for line in lines if line.get("event") == "process_spawn"]
    over = [line["pid"] for line in lines if line.get("event") == "process_exit"]
    assert len(begun) > 50
    assert sorted(begun) == sorted(over)


def test_the_time_limit_shows_as_the_platforms_signals(environment, tmp_path):
    challenge = make_challenge(tmp_path / "c", time_limit_seconds=2)
    script = write_script(tmp_path / "s.jsonl", exec_step("sh", "-c", "trap '' TERM; while :; do sleep 1; done"))
    record = run_script(environment, challenge, script)
    assert record["outcome"] == "TIMED_OUT"
    lines = told(environment, record["attempt_id"], "process")
    ours = [(line["signal"], line["reason"]) for line in lines if "reason" in line]
    assert ours == [(15, "soft_timeout"), (9, "hard_timeout")]
    shell = spawned(lines, "sh -c")
    assert ended(lines, shell["pid"])["signal"] == 9


def test_what_a_process_used_is_sampled_and_the_environment_never_told(environment, tmp_path):
    burn = "import time; b = b'x' * 50_000_000; end = time.time() + 9\nwhile time.time() < end: pass"
    challenge = make_challenge(tmp_path / "c", environment={"SECRET_WORD": "xyzzy-42"})
    script = write_script(tmp_path / "s.jsonl", exec_step("python3", "-c", burn), exec_step("true"))
    record = run_script(environment, challenge, script)
    lines = told(environment, record["attempt_id"])
    heavy = ended(lines, spawned(lines, "python3 -c")["pid"])
    assert heavy["cpu_time_ms"] > 100
    assert heavy["peak_rss_bytes"] > 50_000_000
    quick = ended(lines, spawned(lines, "true")["pid"])
    assert (quick["cpu_time_ms"], quick["peak_rss_bytes"]) == (None, None)
    assert not [line for line in lines if "xyzzy-42" in str(line)]


def test_a_program_that_hides_behind_bad_characters_is_found(environment, tmp_path):
    hidden = "import os; os.execve('/bin/sleep', ['sleep', '20'], {b'BAD': bytes([0xFF])})"
    script = write_script(tmp_path / "s.jsonl", exec_step("python3", "-c", hidden))
    record = run_script(environment, make_challenge(tmp_path / "c"), script)
    lines = told(environment, record["attempt_id"], "process")
    (python,) = [line for line in lines if line.get("event") == "process_spawn" and "inferred" not in line]
    found = [(line["pid"], line["command_line"]) for line in lines if line.get("event") == "process_spawn"]
    assert found == [(python["pid"], python["command_line"]), (python["pid"], "sleep 20")]
    assert ended(lines, python["pid"])["command_line"] == "sleep 20"


UNTOLD = """
import os
def run(*words, path=None, env=None):
    child = os.fork()
    if not child:
        try:
            os.execve(path or words[0], words, env or {"BAD": bytes([0xFF])})
        finally:
            os._exit(127)
    os.waitpid(child, 0)
os.chdir("/workspace/tools")
run("/workspace/tools/bin/hello", "one")
run("bin/hello", "two")
run("/bin/true", bytes([0xFE]), env={"FINE": "x"})
run("/no/such/program")
run("/workspace/tools", "directory")
run("/bin/true", "told", env={"FINE": "x"})
"""


def test_short_programs_that_the_kernel_cannot_tell_are_told_all_the_same(environment, tmp_path):
    script = write_script(tmp_path / "s.jsonl", exec_step("python3", "-c", UNTOLD))
    record = run_script(environment, make_challenge(tmp_path / "c"), script)
    lines = told(environment, record["attempt_id"])
    # The tool is a script that runs no other program.
    spawns = [line for line in lines if line.get("event") == "process_spawn" and "forked" not in line]
    assert [(line["command_line"], line.get("inferred"), line.get("unnamed")) for line in spawns[1:]] == [
        ("/workspace/tools/bin/hello one", True, None),
        ("bin/hello two", True, None),
        ("", True, True),
        ("/bin/true told", None, None),
    ]
    assert len([line for line in lines if line.get("forked")]) == 2
    tools = [line["tool_name"] for line in lines if line.get("kind") == "tool_invocation" and "gap" not in line]
    assert sorted(tools) == ["exec", "hello", "hello"]
    gaps = [line["gap"] for line in lines if "gap" in line]
    assert [(gap["reason"], gap["last"] - gap["first"]) for gap in gaps] == [("trace_unnamed", 0)]
    assert record["flags"] == ["TELEMETRY_INCOMPLETE"]


def test_long_lives_of_scripts_links_and_forks_are_not_taken_for_hidden_programs(environment, tmp_path):
    challenge = make_challenge(tmp_path / "c")
    tool = challenge / "workspace" / "tools" / "bin" / "linger"
    tool.write_text("#!/usr/bin/env python3\nimport os, time\nos.fork()\ntime.sleep(14)\n")
    tool.chmod(0o755)
    work = "ln -s /bin/sleep challenge/nap; challenge/nap 14 & (sleep 14; true) & /workspace/tools/bin/linger & wait"
    record = run_script(environment, challenge, write_script(tmp_path / "s.jsonl", exec_step("sh", "-c", work)))
    lines = told(environment, record["attempt_id"], "process")
    assert [line for line in lines if line.get("event") == "process_spawn" and "inferred" in line] == []
    assert spawned(lines, "challenge/nap 14")
    assert spawned(lines, "/workspace/tools/bin/linger")
