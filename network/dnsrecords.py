"""Extra host names of services that would shadow an allowed domain (R25), compared within bounds.

A DNS record of a values file or an alias of a Compose file that matches an allowed name would send its traffic to a
sibling under the name that was granted. Owns that comparison; the form of a record is checked where services are read.
"""

from __future__ import annotations

from network.domains import overlaps
from network.names import MAX_HOSTS
from network.nodes import Walker
from network.problems import Place
from network.spec import SandboxSpec

Record = tuple[str, Place]
"""A canonical name and where it is written."""
MAX_COMPARISONS = 50_000
"""Of records with patterns: dozens of services with records beside hundreds of patterns stay below."""


def check_records(spec: SandboxSpec, records: list[Record], walker: Walker) -> None:
    """R25 for every record that an allowed domain covers, or once for more than can be compared.

    Too many records altogether are refused by their number (R41) where host names are collected.
    """
    if len(records) > MAX_HOSTS or walker.report.crowded:
        return
    domains = [domain.name for domain in spec.grants.domains if domain.name != "*"]
    plain = {name for name in domains if "*" not in name}
    patterns = [name for name in domains if "*" in name]
    if len(records) * len(patterns) > MAX_COMPARISONS:
        walker.report.reject(
            "R25",
            records[0][1],
            f"{len(records)} extra host names beside {len(patterns)} allowed patterns: too many to tell whether one"
            " shadows the other",
            f"drop host names or patterns, to at most {MAX_COMPARISONS} pairs",
        )
        return
    for name, place in records:
        shadowed = name if name in plain else next((item for item in patterns if overlaps(item, name)), None)
        if shadowed is not None:
            message = f"host name {name} would shadow the allowed domain {shadowed}"
            walker.report.reject("R25", place, message, "drop the host name or the domain")
