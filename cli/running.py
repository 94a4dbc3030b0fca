"""How a command runs: one event loop, one place where failures become messages and exit codes.

0 done, 1 failed or rejected, 2 usage, 3 voided, 4 cannot reach the service.
"""

from __future__ import annotations

import asyncio
import enum
import json
import re
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import grpc
import typer
from rich.console import Console
from rich.text import Text

from cli.plain import safe
from formats.package import PackageError
from formats.problems import FormatError
from wire import errors
from wire.server import EndpointError

PIPE_COLUMNS = 240
SURROGATE = re.compile("[\ud800-\udfff]")
UNREACHABLE = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED"})


class Exit(enum.IntEnum):
    """Exit codes."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    VOIDED = 3
    UNREACHABLE = 4


# Progress and messages; standard output belongs to the answer.
messages = Console(stderr=True, highlight=False)
# A pipe has no width: what goes into one must not be cut to fit a terminal's.
answers = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_COLUMNS)


class CommandFailed(Exception):
    """A command's own refusal; the message says what to do."""

    def __init__(self, message: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.code = code


def print_json(value: Any) -> None:
    """One JSON document on one line of standard output."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if SURROGATE.search(text):  # no UTF-8 has them; as an escape JSON does
        text = json.dumps(value, allow_nan=False)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def fail(message: str, code: Exit = Exit.FAILED) -> NoReturn:
    """Say it on standard error and leave."""
    messages.print(Text.assemble(("error: ", "bold red"), safe(message)), soft_wrap=True)
    raise typer.Exit(int(code))


def run(work: Callable[[], Awaitable[Exit | None]], endpoint: str = "") -> None:
    """Run a command's work and leave with its exit code."""
    try:
        code = asyncio.run(_main(work))
    except errors.WireFailure as failure:
        _fail_wire(failure, endpoint)
    except grpc.RpcError as error:
        _fail_wire(errors.decode(error), endpoint)
    except (FormatError, PackageError) as error:
        fail(str(error))
    except EndpointError as error:
        fail(str(error), Exit.USAGE)
    except CommandFailed as error:
        fail(str(error), error.code)
    except UnicodeEncodeError as error:
        fail(f"{error.object!r} is no UTF-8, and names on the wire are", Exit.USAGE)
    except OSError as error:
        fail(f"{error.filename or ''}: {error.strerror or error}".lstrip(": "))
    except (KeyboardInterrupt, asyncio.CancelledError):
        fail("interrupted")
    raise typer.Exit(int(code or Exit.DONE))


async def _main(work: Callable[[], Awaitable[Exit | None]]) -> Exit | None:
    task = asyncio.current_task()
    assert task is not None
    # As Ctrl-C does: what was begun is taken back, an attempt is not left without its agent.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work()


def _fail_wire(failure: errors.WireFailure, endpoint: str) -> NoReturn:
    if failure.code in UNREACHABLE and not failure.reason:
        fail(f"cannot reach the service at {endpoint}: is it up? (`make run` starts the local stack)", Exit.UNREACHABLE)
    fail(str(failure))
