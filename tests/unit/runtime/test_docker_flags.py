"""Docker's create body against the specification's `docker run` line, flag by flag."""

from pathlib import Path

import pytest

from daemon.runtime.docker_config import container_body, host_config
from daemon.runtime.types import Mount, Resources, SandboxSpec

GIB = 1 << 30
SPEC = SandboxSpec(
    name="main-sbx_1",
    instance="main",
    entry_id="sbx_1",
    template="sha256:aa",
    image="sha256:bb",
    runtime="gauntlet-runsc",
    resources=Resources(memory_bytes=4 * GIB, cpu_millis=2000, disk_bytes=10 * GIB, pids=256, tmp_bytes=2 * GIB),
    seccomp_profile='{"defaultAction":"SCMP_ACT_ERRNO"}',
    mounts=(
        Mount(Path("/slots/1"), "/workspace", propagation="rslave"),
        Mount(Path("/tools"), "/workspace/tools", read_only=True),
    ),
    environment={"B": "2", "A": "1=1"},
)

# The specification's flag, and where the engine's API keeps it. --pids-limit differs on purpose: the host's limit
# counts the sentry's own threads; the guest's is nproc.
FLAGS = {
    "--runtime": ("Runtime", "gauntlet-runsc"),
    "--network none": ("NetworkMode", "none"),
    "--dns (nothing of the host's)": ("Dns", ["127.0.0.1"]),
    "--dns-search (nothing of the host's)": ("DnsSearch", ["."]),
    "--dns-option (nothing of the host's)": ("DnsOptions", ["attempts:1"]),
    "--memory 4g": ("Memory", 4294967296),
    "--memory-swap 4g": ("MemorySwap", 4294967296),
    "--memory-reservation 2g": ("MemoryReservation", 2147483648),
    "--cpus 2": ("NanoCpus", 2_000_000_000),
    "--cpu-shares 1024": ("CpuShares", 1024),
    "--pids-limit (backstop)": ("PidsLimit", 4096),
    "--read-only": ("ReadonlyRootfs", True),
    "--tmpfs /tmp:rw,noexec,nosuid,size=2g": ("Tmpfs", {"/tmp": "rw,noexec,nosuid,size=2147483648"}),
    "--security-opt": ("SecurityOpt", ["no-new-privileges", 'seccomp={"defaultAction":"SCMP_ACT_ERRNO"}']),
    "--cap-drop ALL": ("CapDrop", ["ALL"]),
    "--cap-add": ("CapAdd", ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"]),
    "log driver": ("LogConfig", {"Type": "none", "Config": {}}),
    "never restarted in place": ("RestartPolicy", {"Name": "no"}),
    "--ulimit": (
        "Ulimits",
        [
            {"Name": "nofile", "Soft": 1024, "Hard": 1024},
            {"Name": "nproc", "Soft": 256, "Hard": 256},
            {"Name": "fsize", "Soft": 10737418240, "Hard": 10737418240},
        ],
    ),
    "-v": (
        "Mounts",
        [
            {
                "Type": "bind",
                "Source": "/slots/1",
                "Target": "/workspace",
                "ReadOnly": False,
                "BindOptions": {"Propagation": "rslave"},
            },
            {
                "Type": "bind",
                "Source": "/tools",
                "Target": "/workspace/tools",
                "ReadOnly": True,
                "BindOptions": {"Propagation": "rprivate"},
            },
        ],
    ),
}


@pytest.mark.parametrize("flag", FLAGS)
def test_flag(flag: str) -> None:
    key, wanted = FLAGS[flag]
    assert host_config(SPEC)[key] == wanted


def test_every_key_of_the_host_config_is_accounted_for() -> None:
    extra = {"AutoRemove", "IpcMode", "Privileged"}
    assert set(host_config(SPEC)) == {key for key, _ in FLAGS.values()} | extra


def test_body() -> None:
    body = container_body(SPEC)
    assert body["Labels"] == {
        "gauntlet.instance": "main",
        "gauntlet.entry_id": "sbx_1",
        "gauntlet.template": "sha256:aa",
    }
    assert (body["Entrypoint"], body["Cmd"]) == (["/usr/local/bin/gauntlet-supervisor"], [])
    assert (body["User"], body["Hostname"], body["StopTimeout"]) == ("0:0", "sandbox", 30)
    assert body["Env"] == ["A=1=1", "B=2"]


def test_stdin_outlives_its_clients() -> None:
    # With StdinOnce the engine closes PID 1's stdin when the daemon dies, and the sandbox could not be adopted.
    body = container_body(SPEC)
    assert (body["OpenStdin"], body["StdinOnce"], body["AttachStdin"], body["Tty"]) == (True, False, False, False)


@pytest.mark.parametrize(
    "change",
    [
        {"memory_bytes": 0},
        {"cpu_millis": -1},
        {"disk_bytes": 0},
        {"tmp_bytes": 0},
        {"pids": 4096},
        {"memory_reservation_bytes": 5 * GIB},
    ],
)
def test_impossible_resources_are_refused(change: dict[str, int]) -> None:
    values = {"memory_bytes": GIB, "cpu_millis": 1, "disk_bytes": 1, "pids": 1, "tmp_bytes": 1}
    with pytest.raises(ValueError, match=next(iter(change))):
        Resources(**(values | change))
