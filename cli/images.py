"""`gauntlet image validate`: the validation suite of an image, on this machine's engine. Needs no service."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli import views
from cli.options import Json
from cli.running import CommandFailed, Exit, answers, print_json, run

if TYPE_CHECKING:
    from images.validate import Report

app = typer.Typer(no_args_is_help=True, help="Images of sandboxes.")
COLUMNS = ["point", "check", "result", "seconds", "detail"]


@app.callback()
def images() -> None:
    """Images of sandboxes."""


@app.command("validate")
def validate_image(
    tag: Annotated[str, typer.Argument(help="For example gauntlet-sandbox:python311-1a2b3c4d5.")],
    runtime: Annotated[str, typer.Option("--runtime", help="A runtime entry of the engine.")] = "gauntlet-runsc",
    as_json: Json = False,
) -> None:
    """Try an image's seven points in real sandboxes; leaves with 1 when one does not hold."""

    async def work() -> Exit:
        report = _validated(tag, runtime)
        if as_json:
            print_json({**asdict(report), "passed": report.passed})
        else:
            answers.print(views.table(f"{report.tag} ({report.digest[:19]})", _rows(report), COLUMNS))
        return Exit.DONE if report.passed else Exit.FAILED

    run(work)


def _validated(tag: str, runtime: str) -> Report:
    # The suite is the repository's; the command line that is installed for agents comes without it.
    import docker
    import docker.errors

    from images.stacks import ImageError
    from images.validate import validate
    from seccomp.generate import PROFILE

    try:
        client = docker.from_env(timeout=300)
    except docker.errors.DockerException as error:
        raise CommandFailed(f"the engine does not answer ({error}); run `gauntlet doctor`") from error
    try:
        return validate(tag, client, runtime=runtime, profile=PROFILE.read_text(encoding="utf-8"))
    except (ImageError, docker.errors.DockerException) as error:
        raise CommandFailed(str(error)) from error
    finally:
        client.close()


def _rows(report: Report) -> list[dict[str, Any]]:
    return [
        {
            "point": check.point,
            "check": check.name,
            "result": "passed" if check.passed else "FAILED",
            "seconds": check.seconds,
            "detail": check.detail,
        }
        for check in report.checks
    ]
