"""What the isolation level refuses: R24 at standard, R30-R35 and R39 at strict.

R36 lies with the egress it refuses, R37 and R38 with the runtimes.
"""

from __future__ import annotations

from collections.abc import Sequence

from network.cidrs import INTERNET, Net, reaches
from network.domains import is_broad
from network.isolation import Isolation
from network.problems import Place, Report
from network.spec import Extra, ExtraUse, SandboxSpec

_STRICT_CODES: dict[Extra, str] = {"resources": "R32", "init": "R33", "volume": "R34"}
_FIXES = {
    "R24": "only operators may add resources; remove it",
    "R41": "use a named volume, `name:/path`",
    "R32": "remove additionalResources",
    "R33": "remove the init containers; prepare the image instead",
    "R34": "use a named volume, `name:/path`",
}


def check_level(spec: SandboxSpec, isolation: Isolation, human_evals: Sequence[Place], report: Report) -> None:
    """Reject what the level does not allow; `human_evals` are the places that make this a human eval."""
    for use in spec.extras:
        _extra(use, isolation, report)
    if not isolation.strict:
        return
    if isolation.no_sandbox is not None:
        report.reject(
            "R30",
            isolation.no_sandbox,
            "the strict level needs a sandbox, and this one is absent or `local`",
            "choose a sandbox provider, such as k8s",
        )
    if isolation.default_user is not None:
        report.reject(
            "R31",
            isolation.default_user,
            "default_user needs CAP_SETGID, which the strict level drops",
            "remove it; set the user in the image",
        )
    _broad(isolation, report)
    for place in human_evals:
        report.reject(
            "R39",
            place,
            "a human eval at the strict level would leave its person without access",
            "use the standard level, or an agent",
        )


def _extra(use: ExtraUse, isolation: Isolation, report: Report) -> None:
    code = _STRICT_CODES[use.kind] if isolation.strict else use.standard
    if code is not None:
        level = "the strict level" if isolation.strict else "a task's file"
        report.reject(code, use.place, f"{use.what}: not allowed in {level}", _FIXES[code])


def _broad(isolation: Isolation, report: Report) -> None:
    for domain in isolation.domains:
        if is_broad(domain.name):
            report.reject(
                "R35",
                domain.place,
                f"allow_domains contains {domain.name}, under which anybody can register names",
                "name the engagement's hosts",
            )
    nets: list[Net] = [item.net for item in isolation.cidrs]
    if reaches(nets, INTERNET):
        report.reject(
            "R35",
            isolation.cidrs[0].place,
            "allow_cidr covers the internet: " + ", ".join(map(str, nets[:10])),
            "name the engagement's networks",
        )
