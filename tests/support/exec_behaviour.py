"""How commands must behave, on every kind of box. Classes inherit these tests and provide a fixture `box`."""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
from contextlib import aclosing

import pytest

from daemon.supervisor import link as link_module
from daemon.supervisor.errors import ExecRefused, StdinClosed, SupervisorGone, TooManyExecs
from daemon.supervisor.types import ExecSpec, Exited, Output, Started
from tests.support.supervisor_box import LIVENESS_SECONDS, Box, eventually

ODD_BYTES = bytes(range(256)) + b"\xc3(\xff\xfe\x00" + "é".encode()[:1]
SLEEPERS = "sleep 300 & setsid sleep 300 & sleep 300"


class ExecBehaviour:
    """Output, input, ends and refusals."""

    async def test_bytes_arrive_unchanged(self, box: Box) -> None:
        await box.link.write_file("odd", ODD_BYTES)
        result, out, err = await box.run("sh", "-c", "cat odd; cat odd odd >&2")
        assert (result.exit_code, result.signal, result.error) == (0, None, None)
        assert (out, err) == (ODD_BYTES, ODD_BYTES * 2)

    async def test_arguments_and_environment_arrive_unchanged(self, box: Box) -> None:
        result, out, _ = await box.run(
            "sh", "-c", 'printf "%s|%s|%s" "$1" "$2" "$V"', "sh", b"\xff\xfe", "é\n$x", env={"V": "a=b c"}
        )
        assert result.exit_code == 0
        assert out == b"\xff\xfe|" + "é\n$x".encode() + b"|a=b c"

    async def test_environment_is_base_assignment_and_call(self, box: Box) -> None:
        out = await box.shell("env -u PWD -u SHLVL -u OLDPWD -u _ env", env={"MORE": "1", "TZ": "CET"})
        assert dict(line.split("=", 1) for line in out.splitlines()) == {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": "/home/agent",
            "USER": "agent",
            "LOGNAME": "agent",
            "SHELL": "/bin/sh",
            "LANG": "C.UTF-8",
            "TZ": "CET",
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "GAUNTLET_RANDOM_SEED": "42",
            "MORE": "1",
        }

    async def test_output_past_the_cap_is_drained_and_counted(self, box: Box) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        result, out, _ = await box.run("sh", "-c", "head -c 200000000 /dev/zero; exit 7", max_output_bytes=1 << 20)
        assert (result.exit_code, result.stdout_total, result.stdout_shipped) == (7, 200_000_000, 1 << 20)
        assert result.truncated
        assert len(out) == 1 << 20
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024  # KiB

    async def test_a_reader_that_never_reads_stalls_nobody(self, box: Box) -> None:
        noisy = await box.start("sh", "-c", "head -c 3000000 /dev/zero; echo end >&2", max_output_bytes=4 << 20)
        async with aclosing(noisy.events()) as unread:
            assert isinstance(await anext(unread), Started)
            assert await box.shell("echo fine") == "fine\n"
            result = await noisy.wait()
            assert (result.stdout_total, result.truncated) == (3_000_000, False)
            late = [e async for e in unread]
        assert sum(len(e.data) for e in late if isinstance(e, Output) and e.stream == "stdout") == 3_000_000
        assert noisy.stdout.read(2_999_998) == b"\0\0"

    async def test_output_before_a_timeout_is_delivered(self, box: Box) -> None:
        result, out, _ = await box.run("sh", "-c", "echo early; sleep 300", timeout_seconds=1)
        assert (result.timed_out, result.signal, out) == (True, 9, b"early\n")

    async def test_a_timeout_ends_everything_the_command_started(self, box: Box) -> None:
        watched = await box.start("sh", "-c", SLEEPERS)

        async def all_run() -> bool:  # three, and the shell's own command line
            return sum("sleep 300" in p for p in await box.processes()) == 4

        await eventually(all_run)
        await box.link.signal(watched.exec_id, 9)
        assert (await watched.wait()).signal == 9
        assert not [p for p in await box.processes() if "sleep" in p and not p.startswith("Z")]
        result, _, _ = await box.run("sh", "-c", SLEEPERS, timeout_seconds=1)
        assert (result.timed_out, result.error) == (True, None)
        assert not [p for p in await box.processes() if "sleep" in p and not p.startswith("Z")]
        assert await box.shell("echo usable") == "usable\n"

    async def test_a_child_that_left_session_and_group_is_found(self, box: Box) -> None:
        for _ in range(10):  # the race: its parent must not die before it has been seen
            handle = await box.start("sh", "-c", "setsid sh -c 'echo up; exec sleep 300' & wait")
            assert await handle.stdout.wait_more(0)
            await box.link.signal(handle.exec_id, 9)
            await handle.wait()
            assert not [p for p in await box.processes() if "sleep 300" in p and not p.startswith("Z")]

    async def test_a_stopped_command_times_out_all_the_same(self, box: Box) -> None:
        result, _, _ = await box.run("sh", "-c", "kill -STOP $$; sleep 300", timeout_seconds=1)
        assert (result.timed_out, result.signal) == (True, 9)

    async def test_a_fast_death_by_signal_is_no_timeout(self, box: Box) -> None:
        result, _, _ = await box.run("sh", "-c", "kill -9 $$", timeout_seconds=300)
        assert (result.exit_code, result.signal, result.timed_out) == (None, 9, False)

    async def test_a_command_ends_though_a_child_keeps_its_output(self, box: Box) -> None:
        result, out, _ = await box.run("sh", "-c", "sleep 200 & echo hi")
        assert (result.exit_code, out) == (0, b"hi\n")
        assert [p for p in await box.processes() if "sleep 200" in p], "the child lives on"

    async def test_a_command_ends_though_a_child_keeps_writing(self, box: Box) -> None:
        result, _, _ = await box.run("sh", "-c", "yes & sleep 0.2; exit 4", max_output_bytes=1000)
        assert result.exit_code == 4
        await box.link.kill_all(9)

    async def test_what_was_written_right_before_the_end_is_not_lost(self, box: Box) -> None:
        for _ in range(10):
            _, out, err = await box.run("sh", "-c", "head -c 60000 /dev/zero; head -c 60000 /dev/zero >&2")
            assert (len(out), len(err)) == (60_000, 60_000)

    @pytest.mark.parametrize(
        ("argv", "exit_code", "errno"),
        [
            (["no-such-program"], 127, "ENOENT"),
            (["/no/such/program"], 127, "ENOENT"),
            (["./plain"], 126, "EACCES"),
            (["/etc"], 126, "EACCES"),
            (["./badformat"], 126, "ENOEXEC"),
            (["./badshebang"], 127, "ENOENT"),
        ],
    )
    async def test_what_cannot_start_ends_at_once(self, box: Box, argv: list[str], exit_code: int, errno: str) -> None:
        await box.link.write_file("plain", b"text")
        await box.link.write_file("badformat", b"\0\1\2\3", mode=0o755)
        await box.link.write_file("badshebang", b"#!/no/such/interpreter\n", mode=0o755)
        handle = await box.start(*argv)
        events = [e async for e in handle]
        assert len(events) == 1, "exactly one end event and nothing else"
        end = events[0]
        assert isinstance(end, Exited)
        assert (end.result.exit_code, end.result.signal, end.result.error_errno) == (exit_code, None, errno)
        assert argv[0] in (end.result.error or "")

    @pytest.mark.parametrize(
        ("cwd", "errno"), [("nowhere", "ENOENT"), ("file", "ENOTDIR"), ("/root", "EACCES"), ("/nope/x", "ENOENT")]
    )
    async def test_a_bad_directory_is_named(self, box: Box, cwd: str, errno: str) -> None:
        await box.link.write_file("file", b"")
        result, _, _ = await box.run("true", cwd=cwd)
        assert (result.exit_code, result.signal, result.error_errno) == (None, None, errno)
        assert cwd in (result.error or "")

    async def test_programs_of_the_workspace_are_found_on_path(self, box: Box) -> None:
        await box.link.write_file("bin/mine", b"#!/bin/sh\necho mine\n", mode=0o755, parents=True)
        result, out, _ = await box.run("mine", env={"PATH": "bin:/usr/bin:/bin"})
        assert (result.exit_code, out) == (0, b"mine\n")

    async def test_cwd_is_relative_to_the_workspace(self, box: Box) -> None:
        await box.link.mkdir("a/b", parents=True)
        assert (await box.shell("pwd", cwd="a/b")).endswith("/workspace/a/b\n")

    async def test_forty_megabytes_of_stdin(self, box: Box) -> None:
        data = os.urandom(40 << 20)
        handle = await box.start("sha256sum", stdin=True)
        async with asyncio.timeout(LIVENESS_SECONDS):
            half = len(data) // 2
            assert await box.link.write_stdin(handle.exec_id, 0, data[: half + 7]) == half + 7
            assert await box.link.write_stdin(handle.exec_id, half, data[half:], eof=True) == len(data)
            result = await handle.wait()
        assert result.exit_code == 0
        assert handle.stdout.read(0).split()[0].decode() == hashlib.sha256(data).hexdigest()

    async def test_stdin_that_nobody_wants(self, box: Box) -> None:
        handle = await box.start("sh", "-c", "exec <&-; sleep 300", stdin=True)
        with pytest.raises(StdinClosed):
            async with asyncio.timeout(LIVENESS_SECONDS):
                for at in range(1000):
                    await box.link.write_stdin(handle.exec_id, at * 65536, bytes(65536))
        assert handle.result is None, "the command goes on without it"
        await box.link.signal(handle.exec_id, 9)
        await handle.wait()
        with pytest.raises(StdinClosed):
            await box.link.write_stdin(handle.exec_id, 0, b"late")

    async def test_without_stdin_there_is_an_empty_one(self, box: Box) -> None:
        assert await box.shell("wc -c") == "0\n"
        handle = await box.start("sleep", "300")
        with pytest.raises(StdinClosed):
            await box.link.write_stdin(handle.exec_id, 0, b"x")
        await box.link.signal(handle.exec_id, 9)

    async def test_ten_at_once(self, box: Box) -> None:
        results = await asyncio.gather(*(box.run("sh", "-c", f"echo {n}; exit {n}") for n in range(10)))
        assert [(r.exit_code, out) for r, out, _ in results] == [(n, b"%d\n" % n) for n in range(10)]

    async def test_the_supervisor_refuses_a_33rd(self, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(link_module, "MAX_EXECS", 1000)
        handles = [await box.start("cat", stdin=True) for _ in range(32)]
        with pytest.raises(TooManyExecs):
            await box.start("true")
        await box.link.write_stdin(handles[0].exec_id, 0, b"", eof=True)
        await handles[0].wait()
        assert await box.shell("echo room again") == "room again\n"

    async def test_an_id_is_used_once(self, box: Box) -> None:
        await (await box.link.exec(ExecSpec(["true"]), exec_id="same")).wait()
        with pytest.raises(ExecRefused, match="DUPLICATE"):
            await box.link.exec(ExecSpec(["true"]), exec_id="same")

    async def test_root_needs_admin(self, box: Box) -> None:
        with pytest.raises(ExecRefused, match="INVALID"):
            await box.start("id", uid=0)
        assert await box.shell("id -u; id -g", uid=0, gid=0, admin=True) == "0\n0\n"

    async def test_a_signal_reaches_the_group(self, box: Box) -> None:
        handle = await box.start("sh", "-c", "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.1; done")
        assert await handle.stdout.wait_more(0)
        assert await box.link.signal(handle.exec_id, 15) >= 1
        result = await handle.wait()
        assert (result.exit_code, result.timed_out) == (3, False)
        assert handle.stdout.read(0) == b"ready\ncaught\n"

    async def test_the_agent_holds_nothing_of_ours(self, box: Box) -> None:
        script = (
            "ls -1 /proc/self/fd | wc -l; grep -E 'Cap(Inh|Prm|Eff|Amb)' /proc/self/status | cut -f2 | sort -u;"
            'for f in fd environ mem maps; do cat /proc/1/$f >/dev/null 2>&1 && echo "opened $f"; done;'
            "ls /proc/1/fd >/dev/null 2>&1 && echo listed; kill -9 1 2>/dev/null && echo killed;"
            "kill -STOP 1 2>/dev/null && echo stopped; true"
        )
        # 0, 1, 2 and the directory that ls itself reads.
        assert (await box.shell(script)).split() == ["4", "0000000000000000"]
        await box.link.ping()

    async def test_devices_of_output_can_be_opened_again(self, box: Box) -> None:
        result, out, err = await box.run("sh", "-c", "echo a >/dev/stdout; echo b >/dev/stderr")
        assert (result.exit_code, out, err) == (0, b"a\n", b"b\n")

    async def test_orphans_are_reaped(self, box: Box) -> None:
        await box.shell("for i in 1 2 3 4 5; do (sleep 0.1 & ) ; done")
        await box.until_no("sleep")
        assert not [p for p in await box.processes() if p.startswith("Z")]

    async def test_ping_is_answered_while_all_cpus_burn(self, box: Box) -> None:
        burning = await box.start("sh", "-c", "for i in 1 2 3 4 5 6 7 8; do while :; do :; done & done; wait")
        async with asyncio.timeout(10):
            for _ in range(20):
                await box.link.ping()
        await box.link.signal(burning.exec_id, 9)
        await burning.wait()

    async def test_an_agent_that_stops_every_process_cannot_hang_us(self, box: Box) -> None:
        """A child is the agent's between setuid and execve: a stop signal then would hold up whoever forked it."""
        hostile = "import os, signal\nwhile True:\n  try: os.kill(-1, signal.SIGSTOP)\n  except OSError: pass"
        stoppers = [await box.start("python3", "-c", hostile)]
        async with asyncio.timeout(LIVENESS_SECONDS):
            for _ in range(4):
                await box.run("true", timeout_seconds=1)
            assert await box.link.kill_all(9) == 0
            assert (await stoppers[0].wait()).signal == 9
        assert await box.shell("echo usable") == "usable\n"

    async def test_kill_all_leaves_a_usable_sandbox(self, box: Box) -> None:
        handles = [await box.start("sh", "-c", "setsid sleep 300 & sleep 300") for _ in range(3)]
        assert await box.link.kill_all(9) == 0
        assert {(await h.wait()).signal for h in handles} == {9}
        assert not [p for p in await box.processes() if "sleep" in p and not p.startswith("Z")]

    async def test_stop_gives_grace_and_ends_with_0(self, box: Box) -> None:
        await box.start("sh", "-c", "trap '' TERM; sleep 300; sleep 300")
        script = "trap 'echo bye >said; exit 0' TERM; echo up; while :; do sleep 0.05; done"
        polite = await box.start("sh", "-c", script)
        assert await polite.stdout.wait_more(0)
        async with asyncio.timeout(LIVENESS_SECONDS):
            await box.link.stop(0.5)
            assert await box.exit_code() == 0
        assert (box.workspace / "said").read_text() == "bye\n"
        with pytest.raises(SupervisorGone):
            await box.link.ping()
