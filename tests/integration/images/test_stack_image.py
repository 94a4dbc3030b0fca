"""The image of stack python311, in a real engine and a real sandbox: built twice the same, and fit for its purpose."""

import contextlib
import hashlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from images import build, supervisor
from images.archive import ImageRef
from images.stacks import SUPERVISOR_PATH
from infra.local import runtime_registration as registration
from scripts.provision.places import bin_directory
from tests.support.engines import RunningEngine, running_engine

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(900)]
PROFILE = Path(__file__).resolve().parents[3] / "seccomp" / "profile.json"


@pytest.fixture(scope="module")
def engine() -> Iterator[RunningEngine]:
    with running_engine("current") as running:
        yield running


@pytest.fixture(scope="module")
def client(engine: RunningEngine) -> Iterator[Any]:
    with contextlib.closing(engine.client()) as connected:
        connected.api.timeout = 300
        yield connected


@pytest.fixture(scope="module")
def image(client: Any) -> ImageRef:
    return build.ensure_image("python311", client)


class Result:
    def __init__(self, code: int, output: str) -> None:
        self.code = code
        self.output = output


def in_sandbox(
    client: Any, image: ImageRef, script: str, user: str = "1000", runtime: str = "gauntlet-runsc"
) -> Result:
    """Run a shell script with the flags that a sandbox has."""
    container = client.containers.create(
        image.tag,
        ["/bin/sh", "-c", script],
        runtime=runtime,
        user=user,
        network_mode="none",
        read_only=True,
        tmpfs={"/tmp": "rw,noexec,nosuid,size=256m"},
        cap_drop=["ALL"],
        security_opt=["no-new-privileges", f"seccomp={PROFILE.read_text(encoding='utf-8')}"],
        mem_limit="512m",
        pids_limit=4096,
    )
    try:
        container.start()
        code = int(container.wait(timeout=120)["StatusCode"])
        return Result(code, container.logs().decode())
    finally:
        container.remove(force=True)


def test_a_second_call_builds_and_loads_nothing(client: Any, image: ImageRef) -> None:
    reports: list[str] = []
    assert build.ensure_image("python311", client, report=reports.append) == image
    assert reports == []


def test_built_again_from_packages_in_an_empty_cache_gives_the_same_tag(
    client: Any, image: ImageRef, tmp_path: Path
) -> None:
    reports: list[str] = []
    tmp_path.chmod(0o700)
    again = build.ensure_image("python311", client, cache=tmp_path, report=reports.append)
    assert any("building the base" in line for line in reports)
    assert again == image


def test_an_image_that_was_removed_comes_back_from_the_cache(client: Any, image: ImageRef) -> None:
    client.images.remove(image.tag, force=True)
    reports: list[str] = []
    assert build.ensure_image("python311", client, report=reports.append) == image
    assert reports == [f"loading {image.tag} into the engine"]


def test_a_tag_moved_to_other_bits_is_not_believed(client: Any, image: ImageRef) -> None:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w"):
        pass
    repository, _, tag = image.tag.partition(":")
    client.api.import_image_from_data(body.getvalue(), repository=repository, tag=tag)
    assert build.present(image, client) is False
    assert build.ensure_image("python311", client) == image
    assert build.present(image, client) is True


def test_debians_engine_takes_the_same_archive(image: ImageRef) -> None:
    with running_engine("debian") as older, contextlib.closing(older.client()) as other:
        other.api.timeout = 300
        assert build.ensure_image("python311", other) == image
        assert other.images.get(image.tag).id == image.digest  # this engine's id is the configuration's digest
        assert in_sandbox(other, image, "id -un").output == "agent\n"


def test_the_agent_is_uid_1000_with_a_home_and_no_way_up(client: Any, image: ImageRef) -> None:
    found = in_sandbox(
        client,
        image,
        "id -u; id -un; cd; pwd; grep CapEff /proc/self/status; find / -xdev -perm /6000 -type f 2>/dev/null",
    )
    assert found.output.split("\n") == ["1000", "agent", "/home/agent", "CapEff:\t0000000000000000", ""]


def test_the_workspace_is_roots(client: Any, image: ImageRef) -> None:
    assert in_sandbox(client, image, "stat -c '%U %a' /workspace").output == "root 755\n"
    assert in_sandbox(client, image, "touch /workspace/x").code != 0


def test_the_supervisor_is_inside_and_cannot_be_changed(client: Any, image: ImageRef, tmp_path: Path) -> None:
    found = in_sandbox(client, image, f"stat -c '%U %a' {SUPERVISOR_PATH}; sha256sum {SUPERVISOR_PATH}")
    lines = found.output.splitlines()
    assert lines[0] == "root 755"
    built = supervisor.build_into(tmp_path)
    assert lines[1].split()[0] == hashlib.sha256(built.read_bytes()).hexdigest()


def test_nothing_of_the_judges_is_there(client: Any, image: ImageRef) -> None:
    assert (
        in_sandbox(client, image, "ls -d /scoring /reference /results /sandbox /workspace/.sandbox").output.count(
            "No such file"
        )
        == 5
    )


def test_pytest_runs_as_the_agent(client: Any, image: ImageRef) -> None:
    script = (
        'cd /tmp && printf \'import pytest\\n@pytest.mark.parametrize("n", range(4))\\n'
        "def test_n(n):\\n    assert n < 3\\n' > test_n.py && python3 -m pytest -q -n 2 -p no:cacheprovider test_n.py"
    )
    found = in_sandbox(client, image, script)
    assert found.code == 1
    assert "1 failed, 3 passed" in found.output


def test_the_toolchain_works_under_the_profile(client: Any, image: ImageRef) -> None:
    script = """
set -e
mkdir -p /tmp/w && cd /tmp/w
git init -q . && git config user.email a@b && git config user.name a
printf 'all: x\\n\\t@echo made\\nx: x.c\\n\\tgcc -o x x.c\\n' > Makefile
printf 'int main(void) { return 0; }\\n' > x.c
make && git add . && git commit -qm x && git log --oneline | wc -l
ls -la x && stat -c %A x && ps -o pid= | head -1 >/dev/null && curl --version | head -1
"""
    found = in_sandbox(client, image, script)
    assert found.code == 0, found.output
    assert "made" in found.output and "-rwxr-xr-x" in found.output


def test_postgresql_starts_and_answers(client: Any, image: ImageRef) -> None:
    script = (
        "initdb -D /tmp/db >/tmp/log && pg_ctl -D /tmp/db -o \"-k /tmp -c listen_addresses=''\" -w -l /tmp/pg start "
        ">/tmp/log && psql -h /tmp -d postgres -Atc 'select 6 * 7' && pg_ctl -D /tmp/db stop -m fast >/tmp/log"
    )
    found = in_sandbox(client, image, script)
    assert (found.code, found.output.splitlines()[-1:]) == (0, ["42"]), found.output


def test_python_is_the_promised_one_and_compiled(client: Any, image: ImageRef) -> None:
    found = in_sandbox(
        client,
        image,
        "python3 -c 'import sys, json; print(sys.version_info[:2], json.__cached__)'; "
        "ls /usr/lib/python3.11/__pycache__ | wc -l",
    )
    version, count = found.output.splitlines()
    assert version.startswith("(3, 11) /usr/lib/python3.11/json/__pycache__/")
    assert int(count) > 100


@pytest.mark.parametrize("runtime", ["gauntlet-runsc", "runc"])
@pytest.mark.parametrize(
    ("call", "result"),
    [
        ("unshare(0x10000000)", "-1 1"),
        ('chroot(b"/tmp")', "-1 1"),
        ('mount(b"x", b"/tmp", b"tmpfs", 0, None)', "-1 1"),
        ("syscall(56, 0x10000011, 0, 0, 0, 0)", "-1 1"),
        ("syscall(435, 0, 0)", "-1 38"),
    ],
    ids=["unshare", "chroot", "mount", "clone-newuser", "clone3"],
)
def test_the_profile_is_in_force(client: Any, image: ImageRef, runtime: str, call: str, result: str) -> None:
    program = f"import ctypes; r = ctypes.CDLL(None, use_errno=True).{call}; print(r, ctypes.get_errno())"
    assert in_sandbox(client, image, f"python3 -c '{program}'", runtime=runtime).output.strip() == result


@pytest.mark.parametrize("runtime", ["gauntlet-runsc", "runc"])
def test_ptrace_kills(client: Any, image: ImageRef, runtime: str) -> None:
    script = "python3 -c 'import ctypes; ctypes.CDLL(None).ptrace(0, 0, 0, 0); print(\"alive\")'; echo code $?"
    found = in_sandbox(client, image, script, runtime=runtime)
    lines = found.output.splitlines()  # the shell's own word about the signal comes by stderr, so at any place
    assert "code 159" in lines, found.output
    assert "alive" not in lines, found.output


def test_the_engine_shows_our_runtime(engine: RunningEngine, client: Any) -> None:
    runsc = (bin_directory() / "runsc").resolve()
    entry = registration.runsc_entry(runsc, panic_log_directory=engine.panic_logs)
    assert registration.registered(client.info(), {registration.RUNSC: entry})


def test_a_record_that_does_not_fit_the_engine_is_not_trusted(client: Any, image: ImageRef) -> None:
    other = ImageRef(image.tag, image.digest, ("sha256:" + "0" * 64,))
    assert build.present(other, client) is False
