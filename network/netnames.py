"""The form of service and network names, the same for both readers (R41, R8)."""

from __future__ import annotations

import re

from network.nodes import Walker
from network.problems import shown

SERVICE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
NETWORK_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,53}[A-Za-z0-9])?")


def check_service_name(walker: Walker, name: str, path: str, line: int) -> None:
    """R41 for a name that cannot be a host name and a label."""
    if not SERVICE_NAME.fullmatch(name):
        walker.report.reject(
            "R41",
            walker.place(path, line),
            f"service name {shown(name)} cannot be a host name",
            "use at most 63 lower-case letters, digits and inner hyphens",
        )


def check_network_name(walker: Walker, name: str, path: str, line: int) -> None:
    """R8 for a network name that cannot be a label."""
    if not NETWORK_NAME.fullmatch(name):
        walker.report.reject(
            "R8",
            walker.place(path, line),
            f"network name {shown(name)} cannot be a label",
            "use at most 55 letters, digits, dots, hyphens and underscores",
        )
