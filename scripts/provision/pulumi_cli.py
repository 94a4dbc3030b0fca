"""The Pulumi CLI with its Python language host: found, else the official installer's, else built from
modules.

A built CLI comes without a language host; ours (`tools/pulumi-language-python`) stands in for it.
"""

import hashlib
import shutil
import tempfile
import urllib.request
from pathlib import Path

from scripts.provision.commands import ask, find, run
from scripts.provision.console import say, slow_step
from scripts.provision.go_modules import GoBuild, ensure_built, go_command
from scripts.provision.internet import reachable
from scripts.provision.places import (
    REPOSITORY,
    bin_directory,
    cache_directory,
    cached,
    private_directory,
    publish,
)
from scripts.provision.versions import PULUMI

BUILD = GoBuild(
    name="pulumi",
    version=PULUMI,
    packages={"pulumi": "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"},
    ldflags=f"-X github.com/pulumi/pulumi/sdk/v3/go/common/version.Version={PULUMI}",
    usual_minutes=5,
)
INSTALLER = "https://get.pulumi.com"
LANGUAGE_HOST = REPOSITORY / "tools" / "pulumi-language-python"
LANGUAGE_HOST_PROGRAM = REPOSITORY / "tools" / "pulumi_language_host.py"
SDK_MODULE = "github.com/pulumi/pulumi/sdk/v3"
EXECUTOR = "pulumi-language-python-exec"
DYNAMIC_PROVIDER = "pulumi-resource-pulumi-python"
DOWNLOAD_SECONDS = 60.0


def ensure_pulumi() -> Path:
    """Return the CLI; it and a Python language host are published in the bin directory where they were
    missing."""
    pulumi = _installed() or _official()
    if pulumi is None:
        pulumi = ensure_built(BUILD) / "pulumi"
        publish(pulumi)
    if _language_host_beside(pulumi) is None:
        _publish_our_language_host()
    say("pulumi", f"{(ask([str(pulumi), 'version']) or 'version unknown').strip()} ({pulumi})")
    return pulumi


def _installed() -> Path | None:
    found = find("pulumi")
    if found is not None and ask([str(found), "version"]) is not None:
        return found
    return None


def _language_host_beside(pulumi: Path) -> Path | None:
    """Return an installed language host: the engine looks beside the CLI, then on PATH.

    One in our bin directory does not count: it may be an older one of ours.
    """
    beside = pulumi.resolve().parent / "pulumi-language-python"
    if beside.exists():
        return beside
    found = find("pulumi-language-python")
    return None if found is None or found.parent == bin_directory() else found


def _publish_our_language_host() -> None:
    directory = cached("pulumi-python-host", PULUMI)
    if not (directory / EXECUTOR).exists():
        _copy_from_sdk_module(directory)
    publish(_copy_of_our_language_host())
    publish(directory / EXECUTOR)
    publish(directory / DYNAMIC_PROVIDER)
    say("pulumi", f"no Python language host came with the CLI: using {LANGUAGE_HOST.relative_to(REPOSITORY)}")


def _copy_of_our_language_host() -> Path:
    """Copy it into the cache, by content: other clones of this repository come and go, and use the same cache."""
    files = (LANGUAGE_HOST, LANGUAGE_HOST_PROGRAM)
    digest = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
    directory = cached("pulumi-language-host", digest[:16])
    if not directory.exists():
        staging = Path(tempfile.mkdtemp(prefix=".pulumi-host-", dir=private_directory(cache_directory())))
        for file in files:
            shutil.copy(file, staging)
        try:
            staging.rename(directory)
        except OSError:  # another setup was first, with the same content
            shutil.rmtree(staging)
    return directory / LANGUAGE_HOST.name


def _copy_from_sdk_module(directory: Path) -> None:
    """Take the two scripts of the SDK's source that the Python package does not hold."""
    module = REPOSITORY / "tools" / "modules" / "pulumi"
    go = str(go_command())
    run(
        [go, "mod", "download", SDK_MODULE],
        what="fetching the Pulumi SDK's source",
        remedy="check that the Go module proxy is reachable (go env GOPROXY), then run setup again",
        cwd=module,
    )
    source = Path((ask([go, "-C", str(module), "list", "-m", "-f", "{{.Dir}}", SDK_MODULE]) or "").strip())
    staging = Path(tempfile.mkdtemp(prefix=".pulumi-host-", dir=private_directory(cache_directory())))
    for script in (f"cmd/{EXECUTOR}", f"dist/{DYNAMIC_PROVIDER}"):
        copied = staging / Path(script).name
        shutil.copyfile(source / "python" / script, copied)
        copied.chmod(0o755)
    shutil.rmtree(directory, ignore_errors=True)
    staging.replace(directory)


# The official path has not been run where this was written: its machines reach package registries only.
def _official() -> Path | None:
    if BUILD.program("pulumi").exists() or not reachable(INSTALLER):
        return None
    root = cached("pulumi-official", PULUMI)
    with slow_step("pulumi", f"official installer, version {PULUMI}"):
        private_directory(cache_directory())
        with tempfile.NamedTemporaryFile(suffix=".sh") as script:
            with urllib.request.urlopen(INSTALLER, timeout=DOWNLOAD_SECONDS) as answer:
                script.write(answer.read())
            script.flush()
            run(
                ["sh", script.name, "--version", PULUMI, "--install-root", str(root), "--no-edit-path"],
                what="Pulumi's installer",
                remedy="install Pulumi by hand (https://www.pulumi.com/docs/install) or set GAUNTLET_OFFLINE=1",
            )
    for program in sorted((root / "bin").iterdir()):
        publish(program)
    return root / "bin" / "pulumi"
