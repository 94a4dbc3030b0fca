"""Each limit as an agent meets it, and that the attempt goes on where the specification says so."""

from __future__ import annotations

import asyncio
import json

import pytest

from cli import sandbox
from tests.integration.limits.conftest import DISK, MEMORY, PIDS, TMP
from tests.support.attempts import ended
from tests.support.challenge_files import make_challenge
from tests.support.environment import gauntlet, until
from tests.support.insides import attempt, container_of, cpu_budget, python, shell

pytestmark = pytest.mark.docker
HOG = "b = bytearray()\nwhile True: b += b'x' * 8_000_000"
FORK_UNTIL_REFUSED = """
import errno, os, signal, time
children = []
try:
    while True:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        children.append(pid)
except OSError as error:
    print(errno.errorcode[error.errno], len(children))
for pid in children:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
"""
THREADS_UNTIL_REFUSED = """
import threading
over = threading.Event()
try:
    while True:
        threading.Thread(target=over.wait).start()
except RuntimeError as error:
    print(error)
over.set()
"""
ZOMBIES_UNTIL_REFUSED = """
import errno, os
try:
    while os.fork() or os._exit(0):
        pass
except OSError as error:
    print(errno.errorcode[error.errno])
"""
HALF_THE_LIMIT = f"""
import os, signal
children = [os.fork() or signal.pause() for _ in range({PIDS} // 2)]
for pid in children:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
print("made", len(children))
"""
FILL = """
import errno, os
written = 0
with open("/workspace/submissions/big", "wb", buffering=0) as file:
    try:
        while True:
            written += file.write(bytes(1 << 20))
    except OSError as error:
        print(errno.errorcode[error.errno], written)
"""
OPEN_UNTIL_REFUSED = """
import errno, os
opened = []
try:
    while True:
        opened.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    print(errno.errorcode[error.errno], len(opened))
"""
ONE_LARGE_FILE = f"""
import errno, os, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
file = os.open("/workspace/submissions/sparse", os.O_RDWR | os.O_CREAT)
for size in ({DISK}, {DISK} + 1):
    try:
        os.ftruncate(file, size)
        print("made")
    except OSError as error:
        print(errno.errorcode[error.errno])
os.unlink("/workspace/submissions/sparse")
"""


async def test_memory_takes_the_whole_sandbox_and_nobody_elses(environment, tmp_path):
    challenge = make_challenge(tmp_path / "c")
    async with (
        attempt(environment, challenge, agent_id="hog") as (to, first, hog),
        attempt(environment, challenge, agent_id="neighbour") as (_, second, neighbour),
    ):
        working = asyncio.create_task(
            shell(neighbour, "while ! test -e submissions/stop; do sleep 0.1; done; echo went on")
        )
        assert (await container_of(environment, to, first)).attrs["HostConfig"]["Memory"] == MEMORY
        died = await python(hog, HOG)
        assert died.exit_code is None
        record = await ended(to, first)
        assert (record["outcome"], record["fault"], record["sandbox"]["exit_reason"]) == (
            "OOM_KILLED",
            "AGENT",
            "oom_killed",
        )
        await shell(neighbour, "touch submissions/stop")
        assert (await working).output == "went on\n"
        await sandbox.submit(neighbour)
        assert (await ended(to, second))["outcome"] == "SUBMITTED"


async def test_the_cpu_quota_is_set_and_holds_back(environment, tmp_path):
    async with attempt(environment, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        container = await container_of(environment, to, attempt_id)
        before = cpu_budget(container)
        assert before.quota_us / before.period_us == 0.5
        spinning = asyncio.create_task(shell(agent, "timeout 20 sh -c 'while :; do :; done'"))
        await until(lambda: cpu_budget(container).throttled > before.throttled + 2)
        await sandbox.submit(agent)
        await spinning
        await ended(to, attempt_id)


async def test_processes_end_at_the_limit_and_the_sandbox_lives(environment, tmp_path):
    async with attempt(environment, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        name, made = (await python(agent, FORK_UNTIL_REFUSED)).output.split()
        assert name == "EAGAIN"
        assert PIDS // 2 < int(made) <= PIDS
        assert (await shell(agent, "echo alive")).output == "alive\n"
        await sandbox.submit(agent)
        record = await ended(to, attempt_id)
    assert (record["outcome"], record["fault"], record["flags"]) == ("SUBMITTED", "NONE", ["PIDS_EXHAUSTED"])
    assert record["sandbox"]["exit_code"] == 0


@pytest.mark.parametrize(
    ("program", "said", "flags"),
    [
        (THREADS_UNTIL_REFUSED, "can't start new thread\n", ["PIDS_EXHAUSTED"]),
        (ZOMBIES_UNTIL_REFUSED, "EAGAIN\n", ["PIDS_EXHAUSTED"]),
        (HALF_THE_LIMIT, f"made {PIDS // 2}\n", []),
    ],
    ids=["threads", "zombies", "half"],
)
async def test_a_burst_that_no_sample_meets_is_known_by_its_refusal(environment, tmp_path, program, said, flags):
    async with attempt(environment, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        assert (await python(agent, program)).output == said
        await sandbox.submit(agent)
        record = await ended(to, attempt_id)
    assert (record["outcome"], record["fault"], record["flags"]) == ("SUBMITTED", "NONE", flags)


async def test_a_fork_bomb_harms_its_own_attempt_only(environment, tmp_path):
    challenge = make_challenge(tmp_path / "c", time_limit_seconds=8)
    async with (
        attempt(environment, challenge, agent_id="bomber") as (to, first, bomber),
        attempt(environment, make_challenge(tmp_path / "d"), agent_id="neighbour") as (_, second, neighbour),
    ):
        bomb = asyncio.create_task(shell(bomber, "b() { b | b & }; b; while :; do b; done", seconds=60))
        for number in range(5):
            assert (await shell(neighbour, f"echo served {number}")).output == f"served {number}\n"
        record = await ended(to, first, seconds=90)
        await asyncio.wait_for(asyncio.gather(bomb, return_exceptions=True), 30)
        # Whether it lives to its time limit or falls before, the bomb is its own agent's.
        assert (record["outcome"], record["fault"]) in {
            ("TIMED_OUT", "AGENT"),
            ("CRASHED", "AGENT"),
            ("OOM_KILLED", "AGENT"),
        }
        if record["outcome"] == "TIMED_OUT":  # it went on long enough to be counted
            assert record["flags"] == ["PIDS_EXHAUSTED"], record["sandbox"]
        assert (await shell(neighbour, "echo still served")).output == "still served\n"
        await sandbox.submit(neighbour)
        assert (await ended(to, second))["outcome"] == "SUBMITTED"


async def test_descriptors_and_the_size_of_one_file_end_at_their_limits(environment, tmp_path):
    async with attempt(environment, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        name, opened = (await python(agent, OPEN_UNTIL_REFUSED)).output.split()
        assert name == "EMFILE"
        assert 1000 < int(opened) < 1024
        assert (await python(agent, ONE_LARGE_FILE)).output.split() == ["made", "EFBIG"]
        await sandbox.submit(agent)
        assert (await ended(to, attempt_id))["outcome"] == "SUBMITTED"


async def test_a_full_disk_is_said_and_deleting_frees_it(environment, tmp_path):
    async with attempt(environment, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        name, written = (await python(agent, FILL)).output.split()
        assert name == "ENOSPC"
        assert DISK // 2 < int(written) <= DISK
        assert (await shell(agent, "rm submissions/big; echo again > submissions/again")).exit_code == 0
        await sandbox.write_file(agent, "submissions/code/after.txt", b"y" * 1_000_000)
        assert (await shell(agent, "cat submissions/again")).output == "again\n"
        await sandbox.submit(agent)
        record = await ended(to, attempt_id)
    assert (record["outcome"], record["fault"], record["flags"]) == ("SUBMITTED", "NONE", ["DISK_FULL"])
    changes = json.loads(gauntlet(environment, "attempt", "diff", attempt_id, "--json").stdout)
    assert {entry["path"] for entry in changes} == {"submissions/again", "submissions/code/after.txt"}


async def test_tmp_has_its_size_and_runs_nothing_and_the_root_is_read_only_for_root_too(environment, tmp_path):
    async with attempt(environment, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        filled = await shell(agent, "exec 2>&1; head -c 100m /dev/zero > /tmp/f; stat -c %s /tmp/f")
        assert "No space left" in filled.output
        assert int(filled.output.split()[-1]) <= TMP
        assert (await shell(agent, "rm /tmp/f; cp /bin/true /tmp/t && chmod 755 /tmp/t && /tmp/t")).exit_code == 126
        container = await container_of(environment, to, attempt_id)
        code, words = container.exec_run(["sh", "-c", "touch /x /usr/x /etc/x"], user="0:0")
        assert code != 0
        assert words.decode().count("Read-only file system") == 3, words
        await sandbox.submit(agent)
        record = await ended(to, attempt_id)
    assert record["flags"] == []  # a full /tmp is no full workspace


async def test_a_stop_from_outside_ends_the_sandbox_in_order_within_its_stop_timeout(environment, tmp_path):
    async with attempt(environment, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        container = await container_of(environment, to, attempt_id)
        assert container.attrs["Config"]["StopTimeout"] == 30
        holding = asyncio.create_task(shell(agent, "trap '' TERM; sleep 100"))
        await until(lambda: b"sleep 100" in container.exec_run(["ps", "-eo", "args"], user="1000").output)
        await asyncio.to_thread(container.stop)
        record = await ended(to, attempt_id)
        await asyncio.gather(holding, return_exceptions=True)
    # Nobody of ours ordered it, and PID 1 ended in order: the agent is not to blame.
    assert record["outcome"] in {"VOIDED", "CRASHED"}
    assert record["fault"] in {"PLATFORM", "UNKNOWN"}
