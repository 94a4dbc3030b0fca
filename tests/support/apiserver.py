"""A real Kubernetes API server with Cilium's own CRDs, on loopback, for tests that ask whether it accepts an object.

No controller and no kubelet runs: objects are stored and validated, nothing else. Both processes are ended by
their pid. The CRDs are read from Cilium's module in Go's module cache, never copied.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.gobuild import CILIUM_VERDICT, ETCD, KUBE_APISERVER, built, module_directory

STARTS = 3
START_SECONDS = 90
END_SECONDS = 15
POLL_SECONDS = 0.1
CILIUM_CRDS = "pkg/k8s/apis/cilium.io/client/crds/v2"
#: Kind to (API prefix, plural, namespaced) of what tests send.
KINDS = {
    "Namespace": ("/api/v1", "namespaces", False),
    "Service": ("/api/v1", "services", True),
    "NetworkPolicy": ("/apis/networking.k8s.io/v1", "networkpolicies", True),
    "CiliumNetworkPolicy": ("/apis/cilium.io/v2", "ciliumnetworkpolicies", True),
    "CiliumClusterwideNetworkPolicy": ("/apis/cilium.io/v2", "ciliumclusterwidenetworkpolicies", False),
}
POLICIES = frozenset(KINDS) - {"Namespace", "Service"}
KINDS |= {
    "Pod": ("/api/v1", "pods", True),
    "Job": ("/apis/batch/v1", "jobs", True),
    "RuntimeClass": ("/apis/node.k8s.io/v1", "runtimeclasses", False),
}


@dataclass(frozen=True)
class Reply:
    """The server's answer: HTTP status, its JSON, and the warnings it sent."""

    status: int
    body: dict[str, Any]
    warnings: tuple[str, ...]

    @property
    def accepted(self) -> bool:
        """Whether the object was taken without an error or a warning about one of its fields."""
        return self.status in (200, 201) and not self.warnings

    @property
    def message(self) -> str:
        """Why it was not."""
        return str(self.body.get("message", "")) or "; ".join(self.warnings)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ApiServer:
    """A running server; use it as a context manager."""

    def __init__(self) -> None:
        etcd, apiserver = built(ETCD), built(KUBE_APISERVER)
        self._root = Path(tempfile.mkdtemp(prefix="gapi-"))
        self._token = secrets.token_hex(16)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE  # its own certificate, on loopback, made a moment ago
        try:
            for attempt in range(STARTS):
                try:
                    self._start(etcd, apiserver)
                    return
                except RuntimeError:  # a port that was free a moment ago may be taken by another test process
                    if attempt + 1 == STARTS:
                        raise
                    self._stop()
        except BaseException:
            self.close()
            raise

    def _start(self, etcd: Path, apiserver: Path) -> None:
        client, peer, self._port = _free_port(), _free_port(), _free_port()
        self._spawn(
            "etcd", str(etcd), f"--data-dir={self._root / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{client}", f"--advertise-client-urls=http://127.0.0.1:{client}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}", f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}", "--unsafe-no-fsync",
        )  # fmt: skip
        key = self._root / "accounts.key"
        key.write_bytes(
            rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
            )
        )
        tokens = self._root / "tokens.csv"
        tokens.write_text(f'{self._token},tester,tester,"system:masters"\n')
        tokens.chmod(0o600)
        self._spawn(
            "kube-apiserver", str(apiserver), f"--etcd-servers=http://127.0.0.1:{client}",
            f"--cert-dir={self._root / 'certs'}", f"--secure-port={self._port}", "--bind-address=127.0.0.1",
            "--service-account-issuer=https://tests.invalid", f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}", f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount",
            "--service-cluster-ip-range=10.0.0.0/24",
        )  # fmt: skip
        self._wait("/readyz", lambda reply: reply.status == 200)
        self._install_crds()

    def _spawn(self, name: str, *command: str) -> None:
        with (self._root / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=self._root)
        self._processes.append(process)

    def _wait(self, path: str, done: Any) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            for process in self._processes:
                if process.poll() is not None:
                    raise RuntimeError(f"{process.args} ended with {process.returncode}:\n{self._log_tails()}")
            with contextlib.suppress(urllib.error.URLError, OSError):
                if done(self.call("GET", path)):
                    return
            time.sleep(POLL_SECONDS)  # neither program tells anybody when it is ready
        raise RuntimeError(f"{path} is not ready after {START_SECONDS} s:\n{self._log_tails()}")

    def _log_tails(self) -> str:
        return "\n".join("\n".join(path.read_text().splitlines()[-10:]) for path in sorted(self._root.glob("*.log")))

    def _install_crds(self) -> None:
        directory = module_directory(CILIUM_VERDICT, "github.com/cilium/cilium") / CILIUM_CRDS
        for name in ("ciliumnetworkpolicies", "ciliumclusterwidenetworkpolicies"):
            crd = yaml.safe_load((directory / f"{name}.yaml").read_text())
            reply = self.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
            if reply.status != 201:
                raise RuntimeError(f"CRD {name}: {reply.message}")
            self._wait(f"/apis/cilium.io/v2/{name}", lambda answer: answer.status == 200)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Reply:
        """One request; HTTP errors are replies, not exceptions."""
        request = urllib.request.Request(
            f"https://127.0.0.1:{self._port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, context=self._tls, timeout=30) as answer:
                return _reply(answer.status, answer.read(), answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                return _reply(error.code, error.read(), error.headers)

    def validate(self, item: Mapping[str, Any]) -> Reply:
        """Send an object as a dry run: full validation, unknown fields refused, nothing stored."""
        prefix, plural, namespaced = KINDS[item["kind"]]
        where = f"/namespaces/{item['metadata']['namespace']}" if namespaced else ""
        return self.call("POST", f"{prefix}{where}/{plural}?dryRun=All&fieldValidation=Strict", item)

    def ensure_namespace(self, name: str, **labels: str) -> None:
        """Make a namespace unless it is there; `pod_security="restricted"` enforces that Pod Security Standard."""
        found = {f"{key.replace('_', '-')}.kubernetes.io/enforce": value for key, value in labels.items()}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": found}}
        reply = self.call("POST", "/api/v1/namespaces", body)
        if reply.status not in (201, 409):
            raise RuntimeError(f"namespace {name}: {reply.message}")

    def close(self) -> None:
        """End both processes, the server first, and remove their directory."""
        self._stop()
        shutil.rmtree(self._root, ignore_errors=True)

    def _stop(self) -> None:
        while self._processes:
            process = self._processes.pop()
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
                process.wait(END_SECONDS)
        shutil.rmtree(self._root / "etcd", ignore_errors=True)

    def __enter__(self) -> ApiServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _reply(status: int, body: bytes, headers: Any) -> Reply:
    try:
        parsed = json.loads(body)
    except ValueError:
        parsed = {"message": body.decode(errors="replace")}
    return Reply(status, parsed, tuple(headers.get_all("Warning") or ()))
