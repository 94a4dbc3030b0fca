"""The Pulumi program: one environment per stack."""

from __future__ import annotations

import sys
from pathlib import Path

import pulumi

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "proto")]

from infra.components.local_environment import LocalEnvironment  # noqa: E402 - needs the path
from infra.config import local_settings  # noqa: E402 - needs the path

environment = LocalEnvironment("local", local_settings())
pulumi.export("endpoint", environment.endpoint)
