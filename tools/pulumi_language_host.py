"""A Python language host for Pulumi: what the engine asks before, while and after it runs a Python program.

Stands in for the official host where the CLI was built from modules (the host is not available as one). It serves the
part of the LanguageRuntime service that `preview`, `up`, `refresh`, `destroy` and `about` use; code generation and
packaging answer UNIMPLEMENTED. It installs nothing: the program runs in an environment that already exists.

Protocol: the engine starts this program with its own address as the last argument, reads our port from the first line
of stdout, and ends us with SIGINT.
"""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pulumi
from google.protobuf import empty_pb2
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2

LISTEN = "127.0.0.1:0"
EXECUTOR = "pulumi-language-python-exec"
"""Comes from the SDK's source; setup puts it into the directory that this host is started from."""
EXIT_MESSAGE_SHOWN = 32
"""The executor's exit code for "the program failed and its message was already shown"."""
MAX_MESSAGE_BYTES = 400 * 1024 * 1024
WORKERS = 16
CHUNK_BYTES = 64 * 1024
LIST_PACKAGES = (
    "import importlib.metadata as m, json; "
    "print(json.dumps(sorted({(d.metadata['Name'], d.version) for d in m.distributions()})))"
)

log = logging.getLogger("pulumi-language-python")


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """The service, for one engine."""

    def __init__(self, engine_address: str, executor: Path) -> None:
        self._engine_address = engine_address
        self._executor = executor
        self._children: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()

    def Handshake(
        self, request: language_pb2.LanguageHandshakeRequest, context: grpc.ServicerContext
    ) -> language_pb2.LanguageHandshakeResponse:
        """Take the engine's address where it is given here instead of on the command line."""
        self._engine_address = request.engine_address or self._engine_address
        return language_pb2.LanguageHandshakeResponse()

    def About(self, request: language_pb2.AboutRequest, context: grpc.ServicerContext) -> language_pb2.AboutResponse:
        """Say which Python would run a program."""
        python = interpreter(request.info)
        version = subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout
        return language_pb2.AboutResponse(executable=python, version=version.removeprefix("Python ").strip())

    def GetPluginInfo(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        """Say which SDK this host was written against."""
        return plugin_pb2.PluginInfo(version=getattr(pulumi, "__version__", None) or _sdk_version())

    def GetRequiredPackages(
        self, request: language_pb2.GetRequiredPackagesRequest, context: grpc.ServicerContext
    ) -> language_pb2.GetRequiredPackagesResponse:
        """Name none: providers are found on PATH or through `plugins:` when a resource needs them.

        The official host names every provider whose Python package is installed, and the engine then downloads
        those; here that would fetch providers that the chosen stack does not use.
        """
        return language_pb2.GetRequiredPackagesResponse()

    def GetRequiredPlugins(
        self, request: language_pb2.GetRequiredPluginsRequest, context: grpc.ServicerContext
    ) -> language_pb2.GetRequiredPluginsResponse:
        """Name none, for the reason given in `GetRequiredPackages`."""
        return language_pb2.GetRequiredPluginsResponse()

    def GetProgramDependencies(
        self, request: language_pb2.GetProgramDependenciesRequest, context: grpc.ServicerContext
    ) -> language_pb2.GetProgramDependenciesResponse:
        """List what is installed in the program's environment."""
        listed = subprocess.run(
            [interpreter(request.info), "-c", LIST_PACKAGES], capture_output=True, text=True, check=True
        )
        return language_pb2.GetProgramDependenciesResponse(
            dependencies=[
                language_pb2.DependencyInfo(name=name, version=version) for name, version in json.loads(listed.stdout)
            ]
        )

    def RuntimeOptionsPrompts(
        self, request: language_pb2.RuntimeOptionsRequest, context: grpc.ServicerContext
    ) -> language_pb2.RuntimeOptionsResponse:
        """Ask nothing: there is one way to run a program here."""
        return language_pb2.RuntimeOptionsResponse()

    def InstallDependencies(
        self, request: language_pb2.InstallDependenciesRequest, context: grpc.ServicerContext
    ) -> Iterator[language_pb2.InstallDependenciesResponse]:
        """Install nothing and say so: setup makes the environment, from hash-locked requirements."""
        yield language_pb2.InstallDependenciesResponse(
            stderr=b"this language host installs nothing; scripts/setup makes the environment\n"
        )

    def Run(self, request: language_pb2.RunRequest, context: grpc.ServicerContext) -> language_pb2.RunResponse:
        """Run a program to its end; its output goes to our stderr, which the engine shows."""
        environment = {
            **os.environ,
            "PULUMI_CONFIG": json.dumps(dict(request.config)),
            "PULUMI_CONFIG_SECRET_KEYS": json.dumps(list(request.configSecretKeys)),
        }
        command = [interpreter(request.info), "-u", str(self._executor), *self._run_arguments(request)]
        child = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr)
        with self._tracked(child, context):
            code = child.wait()
        if code == 0:
            return language_pb2.RunResponse()
        if code == EXIT_MESSAGE_SHOWN:
            return language_pb2.RunResponse(bail=True)
        return language_pb2.RunResponse(error=f"the program ended with exit code {code}")

    def _run_arguments(self, request: language_pb2.RunRequest) -> list[str]:
        named = {
            "--monitor": request.monitor_address,
            "--engine": self._engine_address,
            "--project": request.project,
            "--stack": request.stack,
            "--pwd": request.info.program_directory,
            "--root_directory": request.info.root_directory,
            "--organization": request.organization or "organization",
            "--parallel": str(request.parallel),
        }
        if request.dryRun:
            named["--dry_run"] = "true"
        flags = [word for name, value in named.items() if value for word in (name, value)]
        return [*flags, request.info.entry_point or ".", *request.args]

    def RunPlugin(
        self, request: language_pb2.RunPluginRequest, context: grpc.ServicerContext
    ) -> Iterator[language_pb2.RunPluginResponse]:
        """Run a provider written in Python; pass its stdout on as it comes, then its exit code."""
        command = [interpreter(request.info), "-u", request.info.program_directory, *request.args]
        environment = {**os.environ, **dict(pair.split("=", 1) for pair in request.env)}
        child = subprocess.Popen(
            command,
            cwd=request.pwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=sys.stderr,
        )
        with self._tracked(child, context):
            assert child.stdout is not None, "opened as a pipe above"
            while chunk := os.read(child.stdout.fileno(), CHUNK_BYTES):
                yield language_pb2.RunPluginResponse(stdout=chunk)
            yield language_pb2.RunPluginResponse(exitcode=child.wait())

    def Cancel(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> empty_pb2.Empty:
        """End what is running."""
        self.stop_children()
        return empty_pb2.Empty()

    @contextlib.contextmanager
    def _tracked(self, child: "subprocess.Popen[bytes]", context: grpc.ServicerContext) -> Iterator[None]:
        """Keep `child` among those to end, and end it when the engine gives up the call."""
        with self._lock:
            self._children.add(child)
        context.add_callback(child.terminate)
        try:
            yield
        finally:
            with self._lock:
                self._children.discard(child)

    def stop_children(self) -> None:
        """Ask every running program and provider to end."""
        with self._lock:
            running = list(self._children)
        for child in running:
            child.terminate()


def interpreter(info: language_pb2.ProgramInfo) -> str:
    """Return the Python that runs a program: its `virtualenv` option (relative to the project), else our own."""
    options: Any = info.options
    chosen = options.fields["virtualenv"].string_value if "virtualenv" in options.fields else ""
    return str(Path(info.root_directory) / chosen / "bin" / "python") if chosen else sys.executable


def _sdk_version() -> str:
    import importlib.metadata

    return importlib.metadata.version("pulumi")


def find_executor() -> Path:
    """Return the executor's path, beside the link this host was started through or on PATH.

    Raises:
        SystemExit: it is nowhere; setup was not run.
    """
    for directory in os.environ.get("PATH", "").split(os.pathsep):
        candidate = Path(directory) / EXECUTOR
        if candidate.exists():
            return candidate
    raise SystemExit(f"{EXECUTOR} is not on PATH: run scripts/setup and use scripts/env.sh")


def main(arguments: Sequence[str]) -> int:
    """Serve until the engine sends SIGINT."""
    addresses = [word for word in arguments if not word.startswith("-")]
    limits = [
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ]
    server = grpc.server(futures.ThreadPoolExecutor(WORKERS), options=limits)
    host = LanguageHost(addresses[-1] if addresses else "", find_executor())
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server)
    port = server.add_insecure_port(LISTEN)
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    server.start()
    print(port, flush=True)
    ended.wait()
    host.stop_children()
    server.stop(grace=None)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
