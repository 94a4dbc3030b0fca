"""The shapes that cross module borders: verdicts, and what `render --json` and `evaluate` exchange.

This module owns shapes only: no reader, no rule and no renderer logic, so that the evaluator can share
it with the
renderers without sharing any decision. JSON keys and their meaning:

`services[NAME]`, NAME being the final service name (`default` after a rename):

- `internet`        `none`; `listed` = some domains or CIDRs; `all` = everything outside the cluster,
  every port.
- `domains`         canonical host names and patterns, sorted as strings; empty unless `internet` is `listed`.
- `cidrs`           canonical networks (`10.0.0.0/24`), sorted as strings; empty unless `internet` is
  `listed`.
- `dns`             `none`; `siblings` = only names of this sandbox's services; `listed` = those and
  `domains`; `all`.
- `reachable_from`  services that can open a connection to this one, sorted, never the service itself.
- `ports`           the only ports those may use, sorted; null = every port and protocol, or no
  sibling can ever reach it (isolated, or in no network of a file that declares some).
- `outside_ingress` TCP ports reachable from outside the cluster (2222 in human evals), sorted.
- `runtime_class`   name of the runtime class; null = the node's default.
- `granted_by`      where each grant comes from, see `Grant`; not a policy field, the evaluator leaves it
  empty.

`render --json` prints `{"objects": [...], "pods": {NAME: {"labels": {...}, "hosts": [...],
"runtime_class": ..., "security_context": ...}}}`.
`hosts` are the host names that the platform publishes inside the service's pod without any DNS server:
its own and
its siblings' (aliases and original names too). It is empty exactly when the service has no names at all
(`dns: none`).
`security_context` is what the strict level demands of the pod and of its container, null below strict (the
task's own holds) and for `docker` (the daemon's profile holds, at every level).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Internet = Literal["none", "listed", "all"]
Dns = Literal["none", "siblings", "listed", "all"]
Protocol = Literal["TCP", "UDP", "SCTP", "ANY"]
Backend = Literal["cilium", "gke-dpv2", "kubernetes", "docker"]
BACKENDS: tuple[Backend, ...] = ("cilium", "gke-dpv2", "kubernetes", "docker")


@dataclass(frozen=True, order=True, slots=True)
class Port:
    """One port that siblings may use: number 1-65535 and protocol TCP, UDP, SCTP or ANY."""

    port: int
    protocol: str

    def to_json(self) -> dict[str, Any]:
        """`{"port": 80, "protocol": "TCP"}`."""
        return {"port": self.port, "protocol": self.protocol}


@dataclass(frozen=True, order=True, slots=True)
class DomainPort:
    """An extra port opened to the addresses of an allowed domain, or of every allowed one (`domain` is
    None).
    """

    port: int
    protocol: str
    domain: str | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """Where one permission comes from: what it grants, the written value, and its place in the file.

    `grant` is `internet`, `domain`, `cidr`, `port`, `siblings`, `ports`, `ingress` or `runtime`.
    """

    grant: str
    value: str
    service: str | None
    path: str
    line: int | None
    file: str

    def to_json(self) -> dict[str, Any]:
        """One object with the fields above under their names."""
        return {
            "grant": self.grant,
            "value": self.value,
            "service": self.service,
            "path": self.path,
            "line": self.line,
            "file": self.file,
        }


@dataclass(frozen=True, slots=True)
class ServiceVerdict:
    """What one service may do on the network. Field meanings: module docstring."""

    internet: Internet = "none"
    domains: tuple[str, ...] = ()
    cidrs: tuple[str, ...] = ()
    dns: Dns = "none"
    reachable_from: tuple[str, ...] = ()
    ports: tuple[Port, ...] | None = None
    outside_ingress: tuple[int, ...] = ()
    runtime_class: str | None = None
    granted_by: tuple[Grant, ...] = ()

    def to_json(self, *, provenance: bool = True) -> dict[str, Any]:
        """The JSON form; without `provenance` only the policy fields, as `evaluate` prints them."""
        fields: dict[str, Any] = {
            "internet": self.internet,
            "domains": list(self.domains),
            "cidrs": list(self.cidrs),
            "dns": self.dns,
            "reachable_from": list(self.reachable_from),
            "ports": None if self.ports is None else [port.to_json() for port in self.ports],
            "outside_ingress": list(self.outside_ingress),
            "runtime_class": self.runtime_class,
        }
        if provenance:
            fields["granted_by"] = [grant.to_json() for grant in self.granted_by]
        return fields


Matrix = Mapping[str, ServiceVerdict]


def matrix_json(matrix: Matrix, *, provenance: bool = True) -> dict[str, Any]:
    """`{NAME: verdict}` in the order of the file."""
    return {name: verdict.to_json(provenance=provenance) for name, verdict in matrix.items()}


@dataclass(frozen=True, slots=True)
class PodSpec:
    """What the platform puts on one service's pod so that the objects select it and its names resolve."""

    labels: Mapping[str, str]
    hosts: tuple[str, ...] = ()
    runtime_class: str | None = None
    security_context: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """`{"labels": {...}, "hosts": [...], "runtime_class", "security_context": {"pod", "container"} or null}`."""
        return {
            "labels": dict(self.labels),
            "hosts": list(self.hosts),
            "runtime_class": self.runtime_class,
            "security_context": self.security_context,
        }


@dataclass(frozen=True, slots=True)
class Rendered:
    """Policy objects of one sandbox, in the order to apply them, and what each pod carries."""

    objects: tuple[Mapping[str, Any], ...]
    pods: Mapping[str, PodSpec] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """What `render --json` prints and `evaluate` reads."""
        return {
            "objects": list(self.objects),
            "pods": {name: pod.to_json() for name, pod in self.pods.items()},
        }
