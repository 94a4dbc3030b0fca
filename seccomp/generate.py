"""Joins the required list and our deviations into the profile Docker is given.

Run `python -m seccomp.generate` after changing `deviations.py`; `--check` only compares (make lint does).
Owns the shape of the JSON; the reasons are in `deviations.py`.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seccomp.deviations import (
    ABSENT_BY_TRACE,
    ADDITIONS,
    KILLED,
    NAMESPACE_FLAGS,
    NEVER,
    SENTRY_DENIES,
    Addition,
)

HERE = Path(__file__).resolve().parent
REQUIRED = HERE / "spec-v2.json"
PROFILE = HERE / "profile.json"
ALLOW = "SCMP_ACT_ALLOW"


class ProfileError(ValueError):
    """The tables contradict each other or the required list; the message names the call."""


def required_allowed(required: dict[str, Any]) -> list[str]:
    """Return the names the required list allows, in its order."""
    return [name for group in required["syscalls"] if group["action"] == ALLOW for name in group["names"]]


def build(required: dict[str, Any]) -> dict[str, Any]:
    """Return the profile in use.

    Args:
        required: the required profile, in Docker's seccomp format.

    Raises:
        ProfileError: a name is listed twice, or one that must stay out was added.
    """
    handled_apart = {"clone", *ABSENT_BY_TRACE, *KILLED}
    allowed = [name for name in required_allowed(required) if name not in handled_apart]
    for name in (name for addition in (*ADDITIONS, *SENTRY_DENIES) for name in addition.names):
        if name in allowed or name in handled_apart:
            raise ProfileError(f"deviations.py: {name} is listed twice or already required; remove one")
        allowed.append(name)
    for name in NEVER:
        if name in allowed:
            raise ProfileError(f"deviations.py: {name} must stay out of the profile (table NEVER)")
    return {
        "defaultAction": required["defaultAction"],
        "archMap": required["archMap"],
        "syscalls": [
            {"names": [*required_names(allowed, required)], "action": ALLOW, "comment": "Required"},
            *[_group(addition) for addition in ADDITIONS],
            *[_group(addition) for addition in SENTRY_DENIES],
            {
                "names": ["clone"],
                "action": ALLOW,
                "args": [
                    {
                        "index": 0,
                        "value": sum(NAMESPACE_FLAGS.values()),
                        "valueTwo": 0,
                        "op": "SCMP_CMP_MASKED_EQ",
                    }
                ],
                "comment": "Only without " + ", ".join(NAMESPACE_FLAGS),
            },
            {
                "names": list(ABSENT_BY_TRACE),
                "action": "SCMP_ACT_TRACE",
                "comment": "ENOSYS, so that libraries fall back to clone, whose flags can be filtered",
            },
            {
                "names": list(KILLED),
                "action": "SCMP_ACT_KILL",
                "comment": "No process tracing; the death by SIGSYS is what reports it",
            },
        ],
    }


def required_names(allowed: Sequence[str], required: dict[str, Any]) -> list[str]:
    """Return those of `allowed` that the required list allows too."""
    known = set(required_allowed(required))
    return [name for name in allowed if name in known]


def _group(addition: Addition) -> dict[str, Any]:
    return {
        "names": list(addition.names),
        "action": ALLOW,
        "comment": f"{addition.needed_by}. Harmless: {addition.harmless_because}",
    }


def render() -> str:
    """Return the text of `profile.json`."""
    required = json.loads(REQUIRED.read_text(encoding="utf-8"))
    return json.dumps(build(required), indent=2, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the profile, or with `--check` compare it; exit code 1 on drift."""
    parser = argparse.ArgumentParser(prog="python -m seccomp.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only, exit 1 on drift")
    text = render()
    if parser.parse_args(arguments).check:
        if PROFILE.exists() and PROFILE.read_text(encoding="utf-8") == text:
            return 0
        print(f"{PROFILE} is not what deviations.py gives: run python -m seccomp.generate", file=sys.stderr)
        return 1
    PROFILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
