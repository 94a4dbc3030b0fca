"""The local environment by the real Pulumi engine: up, up again, changed, broken, mended, destroyed."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import docker
import psutil
import pytest

from infra.local import shares
from infra.local.processes import start_time
from infra.local.runtime_registration import read_config
from tests.support.attempts import run_script
from tests.support.environment import REPOSITORY, gauntlet
from tests.support.local_stack import LocalStack

pytestmark = [pytest.mark.docker, pytest.mark.pulumi]
EXAMPLE = REPOSITORY / "challenges" / "fix-intervals"


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    made = LocalStack(tmp_path_factory.mktemp("pulumi"))
    try:
        made.up()
        yield made
    finally:
        made.destroy()
        shutil.rmtree(Path("/var/lib/gauntlet") / made.instance, ignore_errors=True)


class Reached:
    """As much of a test environment as `run_script` needs."""

    def __init__(self, stack: LocalStack) -> None:
        self._stack = stack

    def endpoint(self, name: str) -> str:
        return f"unix:///run/gauntlet/{self._stack.instance}/{name}.sock"

    def tail(self, name: str) -> str:
        return ""


def test_an_attempt_runs_in_the_environment(stack):
    record = run_script(Reached(stack), EXAMPLE, EXAMPLE / "agents" / "solve.jsonl")
    assert record["outcome"] == "SUBMITTED"
    assert record["sandbox"]["launch_type"] == "WARM"
    assert record["scores"]["objective"] == 100


def test_a_shell_script_is_an_agent(stack):
    """docs/agents.md: unprivileged, with a `gauntlet` that it can run."""
    program = Path("/tmp") / f"{stack.instance}-agent.sh"
    program.write_text(
        "#!/bin/sh\nset -e\n"
        'test "$(id -u)" != 0\n'
        'gauntlet read "$GAUNTLET_ATTEMPT_ID" challenge/briefing.md | grep -q Assignment\n'
        'gauntlet exec "$GAUNTLET_ATTEMPT_ID" -- sed -i -e "s/start < merged/start <= merged/" '
        '-e "s/merged\\[-1\\]\\[0\\], end)/merged[-1][0], max(merged[-1][1], end))/" challenge/src/intervals.py\n'
        'echo done | gauntlet write "$GAUNTLET_ATTEMPT_ID" submissions/docs/notes.txt\n'
    )
    program.chmod(0o755)
    try:
        done = gauntlet(Reached(stack), "attempt", "run", str(EXAMPLE), "--agent", str(program), "--json")
    finally:
        program.unlink()
    assert done.returncode == 0, done.stderr.decode()
    assert "agent command ended with exit code 0" in done.stderr.decode(), done.stderr.decode()
    record = json.loads(done.stdout)
    assert (record["outcome"], record["scores"]["objective"]) == ("SUBMITTED", 100)


def test_a_second_up_changes_nothing(stack):
    before = {name: state["pid"] for name, state in stack.services().items()}
    stack.up("--refresh", "--expect-no-changes")
    assert {name: state["pid"] for name, state in stack.services().items()} == before


def test_a_changed_setting_changes_only_what_depends_on_it(stack):
    before = stack.services()
    stack.settings["stacks"]["python311"]["pool"] = 2
    stack.write()
    assert {op: n for op, n in stack.preview().items() if op != "same"} == {"update": 1}
    stack.up()
    after = stack.services()
    changed = {name for name in after if after[name]["pid"] != before[name]["pid"]}
    assert changed == {"node-0"}


def test_services_are_detached_and_only_the_daemon_and_the_trace_sink_are_root(stack):
    for name, state in stack.services().items():
        child = psutil.Process(stack.child(name))
        keeper = psutil.Process(int(state["pid"]))
        assert os.getsid(child.pid) == child.pid
        assert os.getsid(keeper.pid) == keeper.pid
        assert child.username() == ("root" if name in ("node-0", "trace") else "gauntlet"), name
        inherited = [f.path for f in child.open_files() if str(REPOSITORY) in f.path]
        assert inherited == []
        assert not [c for c in child.net_connections("inet") if c.status == "LISTEN"]


def test_services_outweigh_all_sandboxes_together(stack):
    where = shares.group(stack.instance)
    assert where is not None
    members = {int(pid) for pid in (where / "cgroup.procs").read_text().split()}
    for name, state in stack.services().items():
        assert {int(state["pid"]), stack.child(name)} <= members, name
    weight = next(path for name in ("cpu.shares", "cpu.weight") if (path := where / name).exists())
    all_containers = where.parent / "docker" / weight.name  # absent where systemd places them, each by itself
    default = 1024 if weight.name == "cpu.shares" else 100
    assert int(weight.read_text()) >= 8 * (int(all_containers.read_text()) if all_containers.exists() else default)


def test_a_service_that_dies_is_restarted_by_its_keeper(stack):
    pid = stack.child("scheduler")
    os.kill(pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=10)
    deadline = psutil.time.time() + 15
    while stack.child("scheduler") in (0, pid) and psutil.time.time() < deadline:
        psutil.time.sleep(0.05)
    assert stack.child("scheduler") not in (0, pid)


def test_a_dead_keeper_is_seen_by_refresh_and_mended_by_up(stack):
    keeper = int(stack.services()["judge"]["pid"])
    child = psutil.Process(stack.child("judge"))
    os.kill(keeper, signal.SIGKILL)
    _, alive = psutil.wait_procs([child], timeout=20)
    assert not alive, "a service outlived its keeper"
    stack.up("--refresh")
    mended = int(stack.services()["judge"]["pid"])
    assert mended != keeper
    assert psutil.pid_exists(mended)


def test_destroy_cleans_up_after_a_daemon_that_was_found_dead(stack):
    before = stack.services()["node-0"]
    os.kill(int(before["pid"]), signal.SIGKILL)
    stack.pulumi("refresh", "--yes", "--stack", stack.name)
    assert stack.services()["node-0"]["alive"] is False
    stack.up()
    assert stack.services()["node-0"]["alive"] is True


def test_a_missing_engine_is_one_clear_message(stack):
    stack.settings["docker_host"] = "unix:///run/no-such-engine.sock"
    stack.write()
    try:
        done = stack.up(check=False)
    finally:
        stack.settings["docker_host"] = "unix:///var/run/docker.sock"
        stack.write()
    assert done.returncode != 0
    assert "no Docker engine answers at unix:///run/no-such-engine.sock" in done.stdout + done.stderr, done.stdout
    stack.up("--refresh")


def test_destroy_leaves_nothing(stack):
    services = stack.services()
    pids = [int(state["pid"]) for state in services.values()] + [stack.child(name) for name in services]
    run = Path("/run/gauntlet") / stack.instance
    assert all(psutil.pid_exists(pid) for pid in pids)
    assert list(run.glob("*.sock"))
    stack.destroy()
    # A zombie has ended; whoever adopted it reaps it when it likes.
    assert [pid for pid in pids if start_time(pid) is not None] == []
    assert not run.exists()
    group = shares.group(stack.instance)
    assert group is not None
    assert not group.exists()
    client = docker.from_env()
    try:
        labels = {"label": f"gauntlet.instance={stack.instance}-0"}
        assert client.containers.list(all=True, filters=labels) == []
        assert f"gauntlet-runsc-{stack.instance}" not in client.info()["Runtimes"]
    finally:
        client.close()
    assert f"gauntlet-runsc-{stack.instance}" not in read_config().get("runtimes", {})
    assert stack.instance not in Path("/proc/self/mountinfo").read_text()
    backing = [f.read_text() for f in Path("/sys/block").glob("loop*/loop/backing_file")]
    assert not [path for path in backing if stack.instance in path]
