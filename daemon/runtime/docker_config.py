"""A sandbox's spec as the JSON body of Docker's `POST /containers/create`.

Pure. Owns the translation of the specification's `docker run` line, flag by flag, and its two deviations: the guest's
process limit is `nproc` (the host's pids limit counts the sentry's own threads and is a backstop), and PID 1 is the
root supervisor. Built by hand rather than by the SDK's helpers: those vary their output with the API version and set
StdinOnce, with which the engine closes PID 1's stdin when an attached client goes away.
"""

from __future__ import annotations

from typing import Any

from daemon.runtime.types import HOST_PIDS_BACKSTOP, Mount, Resources, SandboxSpec

CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID")


def container_body(spec: SandboxSpec) -> dict[str, Any]:
    """The whole body for one sandbox."""
    return {
        "Image": spec.image,
        "Entrypoint": [spec.command[0]],
        "Cmd": list(spec.command[1:]),
        "Hostname": spec.hostname,
        "User": "0:0",
        # The image's own working directory may lie under a mount that is not there yet.
        "WorkingDir": "/",
        "Env": [f"{key}={value}" for key, value in sorted(spec.environment.items())],
        "Labels": spec.labels,
        "OpenStdin": True,
        "StdinOnce": False,
        "AttachStdin": False,
        "AttachStdout": False,
        "AttachStderr": False,
        "Tty": False,
        "StopTimeout": spec.stop_timeout_seconds,
        # A health check of the image would be an exec of ~100 ms into every idle sandbox.
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": host_config(spec),
    }


def host_config(spec: SandboxSpec) -> dict[str, Any]:
    """The body's HostConfig."""
    resources = spec.resources
    security = ["no-new-privileges"]
    if spec.seccomp_profile:
        security.append(f"seccomp={spec.seccomp_profile}")
    return {
        "Runtime": spec.runtime,
        "NetworkMode": "none",
        # Else the engine copies the host's resolver and search list into every sandbox. Nobody answers at this one.
        "Dns": ["127.0.0.1"],
        "DnsSearch": ["."],
        "DnsOptions": ["attempts:1"],
        "Memory": resources.memory_bytes,
        "MemorySwap": resources.memory_bytes,  # equal: no swap
        "MemoryReservation": resources.reservation,
        "NanoCpus": resources.cpu_millis * 1_000_000,
        "CpuShares": resources.cpu_shares,
        "PidsLimit": HOST_PIDS_BACKSTOP,
        "Ulimits": _ulimits(resources),
        "ReadonlyRootfs": True,
        "Tmpfs": {"/tmp": f"rw,noexec,nosuid,size={resources.tmp_bytes}"},
        "SecurityOpt": security,
        "CapDrop": ["ALL"],
        "CapAdd": list(CAPABILITIES),
        "Mounts": [_mount(mount) for mount in spec.mounts],
        "LogConfig": {"Type": "none", "Config": {}},
        "RestartPolicy": {"Name": "no"},
        "AutoRemove": False,
        "IpcMode": "private",
        "Privileged": False,
    }


def _ulimits(resources: Resources) -> list[dict[str, Any]]:
    limits = {"nofile": resources.nofile, "nproc": resources.pids, "fsize": resources.disk_bytes}
    return [{"Name": name, "Soft": value, "Hard": value} for name, value in limits.items()]


def _mount(mount: Mount) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": str(mount.source),
        "Target": mount.target,
        "ReadOnly": mount.read_only,
        "BindOptions": {"Propagation": mount.propagation},
    }
