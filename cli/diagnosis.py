"""`gauntlet doctor`: prints what `cli.doctor` finds."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.text import Text

from cli.options import Json
from cli.plain import one_line
from cli.running import Exit, answers, print_json, run

if TYPE_CHECKING:
    from cli.doctor import Check


def doctor(as_json: Json = False) -> None:
    """Check this machine, one line each, with the remedy; leaves with 1 when something is missing."""

    # The checks look at the whole repository; the installed command line has no such command's needs.
    from cli.doctor import run_checks

    async def work() -> Exit:
        checks = run_checks()
        if as_json:
            print_json([asdict(check) for check in checks])
        else:
            for check in checks:
                answers.print(line(check), soft_wrap=True)
        return Exit.DONE if all(check.ok for check in checks) else Exit.FAILED

    run(work)


def line(check: Check) -> Text:
    """A check as a person reads it: how it stands, and the remedy below it where it does not stand well."""
    mark = ("✓ ", "green") if check.ok else ("✗ ", "red")
    told = Text.assemble(mark, (check.name, "bold"), " ", one_line(check.detail))
    return told if check.ok else told.append(f"\n    → {one_line(check.remedy)}")
