"""Options that every command has, and where the services are.

Endpoint: `--endpoint`, else GAUNTLET_ENDPOINT, else the local stack's. The agents' socket of a scheduler lies beside
the operators' one: `scheduler.sock` and `scheduler-agents.sock`.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

LOCAL_ENDPOINT = "unix:///run/gauntlet/local/scheduler.sock"
AGENT_SUFFIX = "-agents.sock"

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document (or JSON lines) and nothing else.")]
Endpoint = Annotated[
    str | None,
    typer.Option("--endpoint", help="The scheduler; default GAUNTLET_ENDPOINT, else the local stack.", metavar="URL"),
]


def endpoint_of(given: str | None) -> str:
    """The scheduler's operator endpoint."""
    return given or os.environ.get("GAUNTLET_ENDPOINT") or LOCAL_ENDPOINT


def agent_endpoint_of(endpoint: str) -> str:
    """The agents' endpoint that belongs to an operators' one."""
    return endpoint if not endpoint.endswith(".sock") else endpoint.removesuffix(".sock") + AGENT_SUFFIX
