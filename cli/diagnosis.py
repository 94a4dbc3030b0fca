"""`gauntlet doctor`: prints what `cli.doctor` finds."""

from __future__ import annotations

from dataclasses import asdict

from rich.text import Text

from cli.options import Json
from cli.running import Exit, answers, print_json, run


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
                mark = ("✓ ", "green") if check.ok else ("✗ ", "red")
                answers.print(
                    f"{mark} [bold]{check.name}[/] {check.detail.replace('[', chr(92) + '[')}", soft_wrap=True
                )
                if not check.ok:
                    answers.print(Text(f"    → {check.remedy}"), soft_wrap=True)
        return Exit.DONE if all(check.ok for check in checks) else Exit.FAILED

    run(work)
