"""What the strict level demands of a pod's security context, and what of the task's own is kept there.

Strict: no way to more privileges, no capability, the runtime's seccomp profile. The task's user, group and
volume group stay; `runAsNonRoot` and a read-only root file system hold when the task or the eval set asks for
them. Everything else that a task wrote is replaced. Owns R41 for those five keys; below strict the task's
context is its own matter and nothing is rendered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from network.isolation import Isolation
from network.nodes import Walker, is_null, join_path, kind_of
from network.problems import Report
from network.spec import PodUser, ServiceSpec
from network.yamlread import Map, Node, Scalar

MAX_ID = 2**31 - 1
"""The largest user or group id that Kubernetes takes."""
_IDS = {"runAsUser": "uid", "runAsGroup": "gid", "fsGroup": "fs_group"}
_FLAGS = {"runAsNonRoot": "non_root", "readOnlyRootFilesystem": "read_only_root"}


def read_security_context(walker: Walker, node: Node, path: str) -> PodUser:
    """The kept part of a values file's `securityContext`; R41 for what is no id or no boolean."""
    found: dict[str, Any] = {}
    for key, child in node.items.items() if isinstance(node, Map) else ():
        if is_null(child):
            continue
        where = join_path(path, key)
        if key in _IDS and (number := read_id(walker, child, where)) is not None:
            found[_IDS[key]] = number
        elif key in _FLAGS and walker.boolean(child, where, "R41"):
            found[_FLAGS[key]] = True
    return PodUser(**found)


def read_id(walker: Walker, node: Node, path: str) -> int | None:
    """A numeric user or group; R41 for anything else."""
    value = node.value if isinstance(node, Scalar) else None
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_ID:
        return value
    walker.report.reject("R41", walker.place(path, node.line), f"cannot be {kind_of(node)}", f"accepted: 0 to {MAX_ID}")
    return None


def check_users(services: Iterable[ServiceSpec], isolation: Isolation, report: Report) -> None:
    """R41 for a service that runs as root where nobody may: such a pod would never start."""
    for service in services if isolation.strict else ():
        if service.user.uid == 0 and (service.user.non_root or isolation.non_root):
            asked = "the task's runAsNonRoot" if service.user.non_root else "isolation.non_root"
            report.reject(
                "R41",
                service.place,
                f"{service.name} runs as root (user 0), which {asked} forbids: its pod would never start",
                "name another user",
            )


def security_context(service: ServiceSpec, isolation: Isolation) -> Mapping[str, Any] | None:
    """`{"pod": PodSecurityContext, "container": SecurityContext}` at strict, None below it."""
    if not isolation.strict:
        return None
    user = service.user
    pod: dict[str, Any] = {"seccompProfile": {"type": "RuntimeDefault"}}
    for key, field in _IDS.items():
        if (number := getattr(user, field)) is not None:
            pod[key] = number
    if user.non_root or isolation.non_root:
        pod["runAsNonRoot"] = True
    container: dict[str, Any] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    if user.read_only_root or isolation.read_only_root:
        container["readOnlyRootFilesystem"] = True
    return {"pod": pod, "container": container}
