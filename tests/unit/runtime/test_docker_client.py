"""The SDK's client on a socket where nobody listens: an error, and no descriptor left to the garbage collector.

A leaked socket is a ResourceWarning, and warnings are errors here; `gc.collect` makes it come now.
"""

from __future__ import annotations

import gc
import http.server
import json
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests.exceptions

from daemon.runtime.docker_client import open_client


class Answering(http.server.BaseHTTPRequestHandler):
    """An engine that knows its version and nothing else."""

    def do_GET(self) -> None:
        body = json.dumps({"ApiVersion": "1.41", "Path": self.path}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[tuple[Path, Any]]:
    path = tmp_path / "engine.sock"
    with socketserver.UnixStreamServer(str(path), Answering) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield path, server
        server.shutdown()
        thread.join()


def test_it_speaks_the_engines_own_version(listening: tuple[Path, Any]) -> None:
    client = open_client(str(listening[0]), seconds=10, pool_size=2)
    assert client.api_version == "1.41"
    assert client.version()["Path"] == "/v1.41/version"
    client.close()


def test_a_refused_connection_leaves_no_descriptor(tmp_path: Path) -> None:
    with pytest.raises(requests.exceptions.ConnectionError):
        open_client(str(tmp_path / "nobody.sock"), seconds=10, pool_size=2)
    gc.collect()


def test_an_engine_that_goes_away_leaves_no_descriptor(listening: tuple[Path, Any]) -> None:
    path, server = listening
    client = open_client(str(path), seconds=10, pool_size=2)
    server.shutdown()
    server.socket.close()  # refuses from now on, as a killed engine does
    with pytest.raises(requests.exceptions.ConnectionError):
        client.version()
    client.close()
    gc.collect()
