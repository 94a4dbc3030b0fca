"""The gVisor runtime of one instance, registered with the machine's Docker engine.

Its outputs name everything that a sandbox's template needs by digest: an upgraded runsc or other flags serve no old
warm sandbox.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.local import runtime_registration as registration
from infra.local.engine import engine
from infra.local.kinds.base import Kind, ResourceFailed, State
from infra.local.places import Places


class RuntimeRegistration(Kind):
    """`gauntlet:local:Runtime`."""

    outputs = ("name", "digest")
    inputs = ("instance", "runsc", "docker_host")
    replaced_by = ("instance",)

    def create(self, inputs: Mapping[str, Any]) -> tuple[str, State]:
        """Register; other entries stay as they are."""
        places = Places(inputs["instance"])
        runsc = Path(inputs["runsc"])
        if not runsc.is_file():
            raise ResourceFailed(f"{runsc}: no runsc there; run `make setup`")
        entries = {places.runtime: _entry(places, runsc)}
        with engine(inputs["docker_host"]) as client:
            try:
                registration.apply(client, registration.find_daemon(_socket(inputs["docker_host"])), entries)
            except registration.RegistrationError as error:
                raise ResourceFailed(str(error)) from error
        return places.runtime, {**inputs, "name": places.runtime, "digest": _digest(places, runsc)}

    def read(self, resource_id: str, state: Mapping[str, Any]) -> State | None:
        """There while the engine shows exactly our entry and the program has not changed."""
        places, runsc = Places(state["instance"]), Path(state["runsc"])
        with engine(state["docker_host"]) as client:
            shown = registration.registered(client.info(), {places.runtime: _entry(places, runsc)})
        if not shown or not runsc.is_file() or _digest(places, runsc) != state["digest"]:
            return None
        return dict(state)

    def delete(self, resource_id: str, state: Mapping[str, Any]) -> None:
        """Withdraw our entry. An engine that is gone has none."""
        try:
            with engine(state["docker_host"]) as client:
                daemon = registration.find_daemon(_socket(state["docker_host"]))
                registration.withdraw(client, daemon, [Places(state["instance"]).runtime])
        except registration.RegistrationError as error:
            raise ResourceFailed(str(error)) from error


def _entry(places: Places, runsc: Path) -> registration.RuntimeEntry:
    # Without a listener behind that session no container starts: a sandbox nobody hears is none.
    session = f"--pod-init-config={places.pod_init}"
    return registration.runsc_entry(runsc, panic_log_directory=places.panic_logs, extra_arguments=[session])


def _digest(places: Places, runsc: Path) -> str:
    flags = "\0".join(_entry(places, runsc).arguments).encode()
    with runsc.open("rb") as file:
        return f"sha256:{hashlib.sha256(hashlib.file_digest(file, 'sha256').digest() + flags).hexdigest()}"


def _socket(docker_host: str) -> Path:
    return Path(docker_host.removeprefix("unix://"))
