"""The whole way from text to verdicts, in one call: what the CLI and the platform use.

Reads nothing but its arguments: files, environment and cluster are handed in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from network.backends import check_backend
from network.cidrs import always_protected
from network.cluster import Cluster
from network.compose import read_compose
from network.credentials import reject_credentials
from network.isolation import Isolation, raise_to, read_isolation
from network.kinds import detect_kind
from network.model import Backend, Matrix, matrix_json
from network.names import resolve_names
from network.nodes import Walker, is_null, kind_of
from network.problems import Place, Report
from network.spec import Kind, SandboxSpec
from network.substitute import substitute
from network.values import read_values
from network.verdicts import Decision
from network.yamlread import Map, read_yaml

PORT_PROTOCOLS = ("TCP", "UDP", "SCTP")
"""What ANY means."""


@dataclass(frozen=True, slots=True)
class Source:
    """A text and the name under which problems mention it.

    `only` (isolation settings) names the one top-level key to read of a file that holds more.
    """

    text: bytes | str
    file: str
    only: str | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome: the report, and the decision unless the file could not be read at all."""

    report: Report
    spec: SandboxSpec | None
    decision: Decision | None
    isolation: Isolation
    cluster: Cluster | None

    @property
    def ok(self) -> bool:
        """True when nothing was rejected."""
        return self.report.ok and self.decision is not None

    @property
    def matrix(self) -> Matrix:
        """The verdicts; empty unless `ok`, since a rejected file grants nothing."""
        return self.decision.matrix if self.ok and self.decision else {}

    @property
    def digest(self) -> str:
        """SHA-256 over the policy: equal for two files that say the same, whatever their form.

        Covers the verdicts and the extra ports of domains, without provenance.
        """
        ports = [] if not self.ok or self.decision is None else self.decision.egress.ports
        policy = {
            "services": matrix_json(self.matrix, provenance=False),
            "ports": sorted(f"{item.protocol}/{item.port} {item.domain or ''}" for item in ports),
        }
        return hashlib.sha256(json.dumps(policy, sort_keys=True).encode()).hexdigest()

    @property
    def domain_ports(self) -> dict[str, list[dict[str, Any]]]:
        """`{NAME: [{"domain", "port", "protocol"}]}`: open to a domain's addresses without a check of names, as
        `evaluate` finds it; only services that have any.
        """
        if not self.ok or self.decision is None:
            return {}
        found: dict[str, list[dict[str, Any]]] = {}
        for name, verdict in self.matrix.items():
            opened: dict[tuple[str, int], set[str]] = {}
            for item in self.decision.egress.ports:
                for domain in [item.domain] if item.domain else verdict.domains:
                    protocols = set(PORT_PROTOCOLS) if item.protocol == "ANY" else {item.protocol}
                    opened.setdefault((domain, item.port), set()).update(protocols)
            if verdict.domains and opened:
                found[name] = [
                    {"domain": domain, "port": port, "protocol": protocol}
                    for (domain, port), protocols in sorted(opened.items())
                    for protocol in (["ANY"] if len(protocols) == len(PORT_PROTOCOLS) else sorted(protocols))
                ]
        return found

    def to_json(self) -> dict[str, Any]:
        """What `check --json` and `explain --json` print; `domain_ports` only where there are any."""
        return {
            "ok": self.ok,
            "problems": [problem.to_json() for problem in self.report.problems],
            "warnings": [warning.to_json() for warning in self.report.warnings],
            "services": matrix_json(self.matrix),
            **({"domain_ports": self.domain_ports} if self.domain_ports else {}),
        }


def check(
    source: Source,
    *,
    kind: Kind | None = None,
    isolation: Source | None = None,
    task_isolation: Source | None = None,
    cluster: Cluster | None = None,
    env: Mapping[str, str] | None = None,
    human_eval: bool = False,
    backend: Backend | None = None,
) -> Checked:
    """Check one network file.

    `kind` None = detected; `isolation` is the eval set's settings file and `task_isolation` the
    task's own, which may raise the level only; `env` feeds the variables of a Compose file
    (default: none are set); `backend` adds R27 for what that backend cannot enforce (default: the
    cluster file's backend, if any).
    """
    report = Report()
    protected = cluster.protected_ranges() if cluster else always_protected()
    settings = Isolation(place=Place(source.file))
    if isolation is not None:
        settings = read_isolation(isolation.text, isolation.file, report, protected, only=isolation.only)
    if task_isolation is not None:
        own = read_isolation(task_isolation.text, task_isolation.file, report, protected, only=task_isolation.only)
        settings = raise_to(settings, own, report)
    walker = Walker(source.file, report)
    _check_enforcement(cluster, backend, walker)
    spec = _read(source, kind, walker, cluster, env or {})
    if spec is None or not spec.services:
        return Checked(report, spec, None, settings, cluster)
    names = resolve_names(spec, report)
    human = Place("--human-eval", "", None) if human_eval else None
    decision = Decision(spec, names, settings, cluster, human, report)
    target = backend or (cluster.backend if cluster else None)
    if target is not None:
        check_backend(target, decision, spec, cluster, report)
    return Checked(report, spec, decision, settings, cluster)


def _read(
    source: Source, kind: Kind | None, walker: Walker, cluster: Cluster | None, env: Mapping[str, str]
) -> SandboxSpec | None:
    errors = len(walker.report.problems)
    root = read_yaml(source.text, source.file, walker.report)
    empty = root is None or is_null(root)
    if root is None and len(walker.report.problems) > errors:
        return None
    if empty and kind == "values":
        root = Map(1)  # an empty values file is a legal one
    if not isinstance(root, Map):
        found = "nothing" if root is None else kind_of(root)
        walker.report.reject("R40", walker.place("", 1), f"the file holds {found}", "write a mapping with `services:`")
        return None
    reject_credentials(walker, root)
    if (kind or detect_kind(root, source.file)) == "values":
        protected = cluster.protected_ranges() if cluster else always_protected()
        return read_values(root, walker, protected)
    substituted = substitute(root, env, source.file, walker.report)
    if not isinstance(substituted, Map):
        return None
    if env:
        reject_credentials(walker, substituted)  # what the variables hold
    return read_compose(substituted, walker)


def _check_enforcement(cluster: Cluster | None, backend: Backend | None, walker: Walker) -> None:
    """The cluster's half of R26: nothing is started where nothing would be enforced."""
    if cluster is None:
        return
    reasons = []
    if not cluster.enforcement.policy:
        reasons.append(("enforcement.policy", "the cluster does not enforce network policy"))
    if backend and cluster.backend and backend != cluster.backend and backend != "docker":
        reasons.append(("backend", f"the cluster enforces through {cluster.backend}, not {backend}"))
    version = cluster.version("cilium")
    if version and version < (1, 18) and (backend or cluster.backend) == "cilium":
        reasons.append(("versions.cilium", f"Cilium {cluster.versions['cilium']} is older than 1.18"))
    for key, reason in reasons:
        walker.report.reject(
            "R26",
            cluster.place(key) or walker.place("", None),
            f"{reason}: the sandbox would run open",
            "run on a cluster that enforces this backend's policies",
        )
