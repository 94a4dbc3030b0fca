"""runsc: the machine's own if it is current enough, else gVisor's release, else a build from modules.

Registration as Docker runtimes is not here: the stack `local` owns it
(`infra/local/runtime_registration.py`).
"""

import hashlib
import platform
import re
import urllib.request
from pathlib import Path

from scripts.provision.commands import ask, find
from scripts.provision.console import SetupError, say, slow_step
from scripts.provision.go_modules import GoBuild, ensure_built
from scripts.provision.internet import reachable
from scripts.provision.places import cached, private_directory, publish
from scripts.provision.versions import GVISOR_RELEASE

BUILD = GoBuild(
    name="gvisor",
    version=f"release-{GVISOR_RELEASE}",
    packages={"runsc": "gvisor.dev/gvisor/runsc"},
    ldflags=f"-X gvisor.dev/gvisor/runsc/version.version=release-{GVISOR_RELEASE}",
)
RELEASES = "https://storage.googleapis.com/gvisor/releases/release"
DOWNLOAD_SECONDS = 300.0


def release_date(runsc: Path) -> int | None:
    """Return the date in `runsc --version` as a number (20260905), or None for an unreadable answer."""
    printed = ask([str(runsc), "--version"]) or ""
    found = re.search(r"release-(\d{8})", printed)
    return int(found[1]) if found else None


def ensure_runsc() -> Path:
    """Return a runsc of the wanted release or newer, published in the bin directory.

    An installed one that is older is left alone and not used: its only working platform lacks calls that
    current coreutils make.
    """
    runsc = _installed() or _already_cached() or _official() or ensure_built(BUILD) / "runsc"
    dated = release_date(runsc)
    if dated is None:
        raise SetupError(f"{runsc} does not say its version", f"remove {runsc.parent} and run setup again")
    publish(runsc)
    say("gvisor", f"runsc release-{dated} ({runsc})")
    return runsc


def _installed() -> Path | None:
    found = find("runsc")
    if found is None or found.resolve().is_relative_to(cached("gvisor", "").parent):
        return None
    dated = release_date(found)
    if dated is not None and dated >= int(GVISOR_RELEASE):
        return found
    say("gvisor", f"{found} is older than release-{GVISOR_RELEASE}; left alone, another one is used")
    return None


def _already_cached() -> Path | None:
    return next((p for p in [BUILD.program("runsc"), _download_target()] if p.exists()), None)


def _download_target() -> Path:
    return cached("gvisor-official", GVISOR_RELEASE) / "runsc"


# The official path has not been run where this was written: its machines reach package registries only. It
# follows gVisor's published layout: releases/release/<date or "latest">/<arch>/runsc and runsc.sha512.
def _official() -> Path | None:
    for release in (GVISOR_RELEASE, "latest"):
        url = f"{RELEASES}/{release}/{platform.machine()}/runsc"
        if not reachable(url):
            continue
        with slow_step("gvisor", f"downloading {url}"):
            body = _fetch(url)
            expected = _fetch(url + ".sha512").decode().split()[0]
        if hashlib.sha512(body).hexdigest() != expected:
            raise SetupError(
                f"{url} does not match its published SHA-512", "run setup again, or set GAUNTLET_OFFLINE=1"
            )
        target = _download_target()
        private_directory(target.parent)
        fresh = target.with_name(".runsc.new")
        fresh.write_bytes(body)
        fresh.chmod(0o755)
        fresh.replace(target)
        return target
    return None


def _fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=DOWNLOAD_SECONDS) as answer:
        return bytes(answer.read())
