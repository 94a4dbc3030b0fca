"""Setup from beginning to end: `scripts/setup`. Safe to run again; the second run only looks.

Owns the order. `--stop-engine` undoes the one thing that outlives setup: a dockerd it started.
"""

import argparse
import sys
import time
from collections.abc import Sequence

from scripts.provision import debian, docker_engine, engine_process, gvisor, pulumi_cli, python_env
from scripts.provision.console import SetupError, say
from scripts.provision.places import cache_directory, private_directory, state_directory


def setup() -> None:
    """Bring every part of the machine to the state the project needs."""
    private_directory(cache_directory())
    private_directory(state_directory())
    debian.ensure_programs()
    python_env.ensure_environment()
    gvisor.ensure_runsc()
    docker_engine.ensure_engine()
    pulumi_cli.ensure_pulumi()


def tools_for_tests() -> None:
    """Fetch what only the tests need: the two engines that they start themselves, a PostgreSQL server."""
    debian.ensure_postgresql()
    say("docker", f"current engine in {docker_engine.current_engine().dockerd.parent}")
    say("docker", f"second engine in {docker_engine.debian_engine().dockerd.parent}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run setup, or one part of it; exit code 1 with the one thing to do when a step fails."""
    parser = argparse.ArgumentParser(prog="scripts/setup", description=__doc__)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--stop-engine", action="store_true", help="end the dockerd that setup started, if any")
    choice.add_argument("--second-engine", action="store_true", help="fetch the tests' second engine (Debian's)")
    choice.add_argument("--current-engine", action="store_true", help="build the tests' first engine (current)")
    choice.add_argument("--for-tests", action="store_true", help="fetch both engines and the PostgreSQL server")
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    try:
        if options.stop_engine:
            if not engine_process.stop():
                say("docker", "no engine of ours is running; one that setup found is left alone")
        elif options.for_tests:
            tools_for_tests()
        elif options.second_engine:
            say("docker", f"second engine in {docker_engine.debian_engine().dockerd.parent}")
        elif options.current_engine:
            say("docker", f"current engine in {docker_engine.current_engine().dockerd.parent}")
        else:
            setup()
            say("done", f"ready after {time.monotonic() - begun:.0f} s; `gauntlet doctor` shows each part")
    except SetupError as failure:
        print(f"setup failed: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
