"""The probe as a Kubernetes Job: beside one service's pod, with its labels and runtime class.

The labels make the same policies select it, the runtime class puts it behind the same network stack.
It runs once, as nobody, without a token and without anything writable.
"""

from __future__ import annotations

from typing import Any

from network.model import Rendered
from network.probeplan import VARIABLE, ProbePlan
from network.render.names import SANDBOX, RenderError, metadata, slug

DEADLINE_SECONDS = 60
UID = 65532


def probe_job(rendered: Rendered, plan: ProbePlan, *, image: str) -> dict[str, Any]:
    """The Job that runs `plan` in the place of its service; its pod's log is the probe's output.

    `image` holds the static program as /netprobe and is named by digest. Apply it after the policies
    and before the service's own pod. RenderError for an unknown service or an image by tag.
    """
    service = plan.service
    pod = rendered.pods.get(service)
    if pod is None:
        raise RenderError(f"there is no service {service!r}; known: {', '.join(rendered.pods)}")
    if "@sha256:" not in image:
        raise RenderError(f"image {image[:80]!a}: name the probe's image by digest, NAME@sha256:...")
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostname": service,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": UID,
            "runAsGroup": UID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "netprobe",
                "image": image,
                "command": ["/netprobe"],
                "env": [{"name": VARIABLE, "value": plan.text}],
                "resources": {
                    "requests": {"cpu": "10m", "memory": "32Mi"},
                    "limits": {"cpu": "1", "memory": "128Mi"},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    }
    if pod.runtime_class is not None:
        spec["runtimeClassName"] = pod.runtime_class
    meta = metadata(pod.labels[SANDBOX], plan.namespace, "probe", service)
    # A Job's name becomes a label and its pod's host name: without dots, at most 63 characters.
    meta["name"] = slug(meta["name"])
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta,
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": DEADLINE_SECONDS,
            "ttlSecondsAfterFinished": 600,
            "template": {"metadata": {"labels": dict(pod.labels)}, "spec": spec},
        },
    }
