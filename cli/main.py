"""The command line's table of contents. Each command lives with its kind."""

from __future__ import annotations

import os

# gRPC would otherwise talk about forks on standard error, which belongs to our messages.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")

import typer

from cli import agent_calls, attempts, classification, diagnosis, images, network, operators, replay, reports

app = typer.Typer(
    name="gauntlet",
    no_args_is_help=True,
    add_completion=False,
    help="Run adversarial agents in identical, isolated, monitored sandboxes.",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
app.add_typer(attempts.app, name="attempt")
attempts.app.command("report")(reports.report)
attempts.app.command("replay")(replay.replay)
app.command("events")(attempts.events)
app.command("exec")(agent_calls.exec_command)
app.command("read")(agent_calls.read)
app.command("write")(agent_calls.write)
app.command("queue")(operators.queue)
app.add_typer(operators.node, name="node")
app.add_typer(operators.pool, name="pool")
app.add_typer(operators.audit, name="audit")
app.add_typer(network.app, name="network")
app.add_typer(classification.app, name="classify")
app.add_typer(images.app, name="image")
app.command("doctor")(diagnosis.doctor)

if __name__ == "__main__":
    app()
