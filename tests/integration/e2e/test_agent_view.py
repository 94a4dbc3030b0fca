"""What the agent sees and may do from inside its sandbox: nothing of ours."""

from __future__ import annotations

import pytest

from cli import sandbox
from tests.support.attempts import ended, running
from tests.support.challenge_files import make_challenge

pytestmark = pytest.mark.docker


@pytest.fixture
async def shell(environment, tmp_path):
    """Runs a shell command in a running attempt; returns exit code and output."""
    challenge = make_challenge(tmp_path / "c", environment={"MODE": "exam"})
    async with running(environment, challenge) as (to, attempt_id, agent):

        async def run(script: str) -> tuple[int | None, str]:
            out = bytearray()
            end = await sandbox.run_command(
                agent, ["sh", "-c", script], stdout=out.extend, stderr=out.extend, timeout_seconds=60
            )
            return end.exit_code, out.decode(errors="replace")

        yield run, attempt_id, environment
        await sandbox.submit(agent)
        await ended(to, attempt_id)


async def test_who_the_agent_is(shell):
    run, _, _ = shell
    assert await run("id -u; id -g; hostname") == (0, "1000\n1000\nsandbox\n")
    _, status = await run("cat /proc/self/status")
    caps = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if line.startswith("Cap")}
    assert int(caps["CapEff"], 16) == 0
    assert int(caps["CapPrm"], 16) == 0


async def test_nothing_of_ours_is_in_the_environment(shell):
    run, attempt_id, environment = shell
    _, text = await run("env")
    names = {line.split("=")[0] for line in text.splitlines()}
    assert {"GAUNTLET_RANDOM_SEED", "MODE", "PATH", "HOME"} <= names
    assert [name for name in names if name.startswith("GAUNTLET_")] == ["GAUNTLET_RANDOM_SEED"]
    for secret in (attempt_id, environment.instance, "gst1.", str(environment.root)):
        assert secret not in text


async def test_the_hosts_resolver_is_not_told(shell):
    run, _, _ = shell
    _, text = await run("cat /etc/resolv.conf")
    told = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert told in (["nameserver 127.0.0.1", "options attempts:1"], ["options attempts:1", "nameserver 127.0.0.1"]), (
        text
    )


async def test_hidden_files_and_host_paths_do_not_exist(shell):
    run, _, environment = shell
    places = "/sandbox /workspace/.sandbox /scoring /reference /results /hidden"
    script = f"for p in {places}; do test -e $p && echo $p; done; true"
    assert await run(script) == (0, "")
    _, found = await run(
        "find / -xdev \\( -name 'test_edge.py' -o -name 'objective.yaml' -o -name '*.sock' \\) 2>/dev/null"
    )
    assert found == ""
    _, mounts = await run("cat /proc/self/mountinfo /proc/mounts")
    assert str(environment.root) not in mounts
    assert "overlay" not in mounts.split(" /workspace")[-1].splitlines()[0]


async def test_the_workspace_is_laid_out_as_promised(shell):
    run, _, _ = shell
    _, text = await run("stat -c '%n %U %a' /workspace /workspace/* /workspace/tools/bin/hello")
    facts = {line.split()[0]: line.split()[1:] for line in text.splitlines()}
    assert facts["/workspace"] == ["root", "755"]
    assert facts["/workspace/challenge"][0] == "agent"
    assert facts["/workspace/submissions"][0] == "agent"
    assert facts["/workspace/tools/bin/hello"] == ["root", "755"]
    assert set(facts) == {
        "/workspace",
        *(f"/workspace/{n}" for n in ("challenge", "submissions", "tools", "tools/bin/hello")),
    }
    assert await run("/workspace/tools/bin/hello") == (0, "hello\n")
    code, _ = await run("touch /workspace/tools/bin/x || touch /workspace/x")
    assert code != 0


async def test_the_supervisor_cannot_be_touched(shell):
    run, _, _ = shell
    for script in (
        "kill -9 1",
        "kill -STOP 1",
        "cat /proc/1/environ",
        "cat /proc/1/mem",
        "echo x > /proc/1/fd/1",
        "ls /proc/1/fd/",
    ):
        code, text = await run(script)
        assert code != 0, (script, text)
    code, _ = await run("true")
    assert code == 0


async def test_the_root_is_read_only_and_tmp_runs_nothing(shell):
    run, _, _ = shell
    code, _ = await run("touch /x || touch /usr/x || touch /etc/x")
    assert code != 0
    code, text = await run("cp /bin/true /tmp/t && chmod +x /tmp/t && /tmp/t")
    assert code == 126, text


async def test_there_is_no_network_but_loopback(shell):
    run, _, _ = shell
    _, text = await run("ls /sys/class/net 2>/dev/null; cat /proc/net/dev | tail -n +3 | cut -d: -f1")
    assert set(text.split()) == {"lo"}
    probe = (
        "import socket\n"
        "for a in [('8.8.8.8', 53), ('169.254.169.254', 80), ('172.17.0.1', 22)]:\n"
        "    s = socket.socket(); s.settimeout(3)\n"
        "    try: s.connect(a); print('reached', a)\n"
        "    except OSError: pass\n"
    )
    assert await run(f'python3 -c "{probe}"') == (0, "")
