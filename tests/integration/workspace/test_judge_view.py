"""What a judge's container would see of a hostile workspace."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.workspace import mountinfo
from daemon.workspace.judge_view import RESULTS_BYTES
from daemon.workspace.model import JudgeKind, JudgeMounts
from tests.support.workspaces import Host, agent

ORIGINAL_TEST = "def test_add():\n    assert True\n"


async def view_of(host: Host, script: str, kind: JudgeKind = JudgeKind.FINAL, withhold: tuple[bytes, ...] = ()) -> Path:
    slot = await host.assigned()
    agent(slot, script)
    await host.extracted(slot)
    return (await host.manager.judge_mounts(slot, kind, "jsb_1", withhold)).mounts[0].source


def tree(directory: Path) -> set[str]:
    """Every path, dangling links included; deeper than PATH_MAX as well."""
    done = subprocess.run(["find", ".", "-mindepth", "1", "-print0"], cwd=directory, capture_output=True, check=True)
    return {os.fsdecode(path).removeprefix("./") for path in done.stdout.split(b"\0") if path}


async def test_agents_work_is_shown(host: Host) -> None:
    view = await view_of(host, "echo fixed > challenge/src/app.py; rm challenge/src/old.py; echo > submissions/code/n")
    assert (view / "challenge/src/app.py").read_text() == "fixed\n"
    assert not (view / "challenge/src/old.py").exists()
    assert (view / "submissions/code/n").exists() and (view / "tools/bin/lint").exists()
    assert (view / "challenge/src/app.py").stat().st_uid == 1000


@pytest.mark.parametrize(
    "script",
    [
        "echo 'def test_add(): pass' > challenge/tests/test_app.py; echo x > challenge/tests/extra.py",
        "rm -r challenge/tests",
        "rm -r challenge/tests; mkdir challenge/tests; echo evil > challenge/tests/test_app.py",
        "rm -r challenge/tests; ln -s ../submissions/code challenge/tests; echo evil > submissions/code/test_app.py",
        "rm -r challenge/tests; echo a file > challenge/tests",
        "rm challenge/tests/test_app.py; ln -s /etc/shadow challenge/tests/test_app.py",
        "mkdir challenge/tests/__pycache__; echo evil > challenge/tests/__pycache__/test_app.cpython-311.pyc",
        "chmod 000 challenge/tests",
    ],
)
async def test_visible_tests_are_snapshot_a(host: Host, script: str) -> None:
    view = await view_of(host, script)
    tests = view / "challenge/tests"
    assert not tests.is_symlink() and stat.S_IMODE(tests.stat().st_mode) == 0o755
    assert tree(tests) == {"test_app.py", "data", "data/one.txt"}
    assert (tests / "test_app.py").read_text() == ORIGINAL_TEST
    assert (tests / "test_app.py").stat().st_uid == 1000


STEERING = (
    "conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", "evil.pth",
    "sitecustomize.py", "usercustomize.py", "sitecustomize.so", "x-1.0.dist-info", "x.egg-info", "X.Dist-Info",
    "pytest.toml", "conftest", "__pycache__",
)  # fmt: skip


@pytest.mark.parametrize(
    "make",
    [
        pytest.param("echo evil > $f", id="file"),
        pytest.param("mkdir $f; echo evil > $f/__init__.py; echo evil > $f/plugin", id="directory"),
        pytest.param("ln -s ../innocent $f", id="link"),
    ],
)
async def test_new_steering_files_are_hidden(host: Host, make: str) -> None:
    places = ("challenge/src", "submissions/code", "challenge/new/deep")
    view = await view_of(
        host,
        f"mkdir -p challenge/new/deep; echo innocent > challenge/innocent; for place in {' '.join(places)}; do "
        f"echo mine > $place/mine; for name in {' '.join(STEERING)}; do f=$place/$name; {make}; done; done",
    )
    shown = {place: {path for path in tree(view / place) if "/" not in path} for place in places}
    assert shown == {
        "challenge/src": {"app.py", "old.py", "mine"},
        "submissions/code": {"mine"},
        "challenge/new/deep": {"mine"},
    }, "what stands beside them stays"
    assert (view / "challenge/innocent").exists()


@pytest.mark.parametrize(
    "script",
    [
        "echo evil >> challenge/conftest.py",
        "rm challenge/conftest.py",
        "rm challenge/conftest.py; mkdir challenge/conftest.py; echo evil > challenge/conftest.py/__init__.py",
        "rm challenge/conftest.py; ln -s /etc/shadow challenge/conftest.py",
        "mv challenge/conftest.py challenge/src/conftest.py",
    ],
)
async def test_changed_steering_files_come_back(host: Host, script: str) -> None:
    view = await view_of(host, script)
    assert (view / "challenge/conftest.py").read_text() == "# the challenge's own\n"
    assert not (view / "challenge/conftest.py").is_symlink()
    assert not (view / "challenge/src/conftest.py").exists()


async def test_untouched_steering_files_stay(host: Host) -> None:
    view = await view_of(host, "touch challenge/conftest.py; echo x > challenge/conftest_helpers.py")
    assert (view / "challenge/conftest.py").exists() and (view / "challenge/pytest.ini").exists()
    assert (view / "challenge/conftest_helpers.py").exists(), "an ordinary module with a similar name"


async def test_directory_made_a_link_hides_nothing_elsewhere(host: Host) -> None:
    view = await view_of(
        host,
        "rm -r challenge/docs; ln -s src challenge/docs; echo evil > challenge/docs/conftest.py",
    )
    assert (view / "challenge/docs").is_symlink() and os.readlink(view / "challenge/docs") == "src"
    assert not (view / "challenge/src/conftest.py").exists()
    assert (view / "challenge/src/app.py").exists()


async def test_steering_below_any_depth_and_number(host: Host) -> None:
    """Deeper than PATH_MAX, and more of them than a mask is made for: nothing gets through."""
    slot = await host.assigned()
    agent(
        slot,
        "cd challenge; for i in $(seq 300); do mkdir d$i; echo evil > d$i/conftest.py; done; "
        " n=$(printf 'n%.0s' $(seq 250)); for i in $(seq 30); do mkdir $n; cd $n; done; echo evil > conftest.py",
    )
    await host.extracted(slot)
    view = (await host.manager.judge_mounts(slot, JudgeKind.FINAL, "jsb_1")).mounts[0].source
    assert {path for path in tree(view / "challenge") if path.endswith("conftest.py")} == {"conftest.py"}


async def test_withheld_paths_are_snapshot_a(host: Host) -> None:
    view = await view_of(
        host,
        "echo suspect > challenge/src/app.py; echo suspect > challenge/new; echo fine > challenge/src/other",
        withhold=(b"challenge/src/app.py", b"challenge/new"),
    )
    assert "return a - b" in (view / "challenge/src/app.py").read_text()
    assert not (view / "challenge/new").exists() and (view / "challenge/src/other").exists()


async def test_reference_view_has_no_agent_file(host: Host) -> None:
    view = await view_of(
        host, "for f in src/app.py conftest.py; do echo evil > challenge/$f; done", JudgeKind.REFERENCE
    )
    assert (view / "challenge/src/app.py").read_text() == "def add(a, b):\n    return a + b\n"
    assert (view / "challenge/src/old.py").exists() and (view / "challenge/tests/test_app.py").exists()
    assert (view / "challenge/conftest.py").read_text() == "# the challenge's own\n"
    status = (view / "challenge/src").stat()
    assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (1000, 0o755)


async def test_mounts_of_a_judge(host: Host) -> None:
    slot = await host.assigned()
    await host.extracted(slot)
    made: JudgeMounts = await host.manager.judge_mounts(slot, JudgeKind.FINAL, "jsb_1")
    assert [(mount.target, mount.read_only) for mount in made.mounts] == [
        ("/workspace", True),
        ("/scoring", True),
        ("/reference", True),
        ("/results", False),
    ]
    by_target = {mount.target: mount.source for mount in made.mounts}
    assert (by_target["/scoring"] / "hidden_tests/regression/test_hidden.py").exists()
    assert (by_target["/reference"] / "src/app.py").exists()
    for path in by_target["/scoring"].rglob("*"):
        assert path.stat().st_uid == 0 and path.stat().st_mode & 0o044 == 0o044, "uid 1000 may read, not write"
    assert by_target["/scoring"].parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(OSError) as caught:
        (by_target["/workspace"] / "challenge/x").write_text("")
    assert caught.value.errno == errno.EROFS
    results = by_target["/results"]
    assert made.results == results and results.stat().st_uid == 1000
    status = os.statvfs(results)
    assert status.f_blocks * status.f_frsize == RESULTS_BYTES
    assert await host.manager.judge_mounts(slot, JudgeKind.FINAL, "jsb_1") == made
    other = await host.manager.judge_mounts(slot, JudgeKind.REFERENCE, "jsb_2")
    assert len([m for m in mountinfo.below(host.state) if "judge" in m.target.parts]) == 4
    for judge_id in ("jsb_1", "jsb_1", "jsb_2"):
        await host.manager.release_judge(slot, judge_id)
    assert not [m for m in mountinfo.below(host.state) if "judge" in m.target.parts]
    assert not made.results.exists() and not other.results.exists()


async def test_pytest_with_the_agents_tree_runs_only_the_challenges_hooks(host: Host) -> None:
    """The whole point, with a real pytest: hooks that the agent planted do not run."""
    marker = host.directory / "owned"
    marker.touch()
    marker.chmod(0o666)
    evil = f"import pathlib; pathlib.Path({str(marker)!r}).write_text('owned')"
    slot = await host.assigned()
    agent(
        slot,
        f"""echo "{evil}" | tee -a challenge/conftest.py challenge/src/conftest.py challenge/tests/conftest.py """
        f"""challenge/sitecustomize.py evil 2>/dev/null >/dev/null || true; printf '[pytest]\\naddopts = -p evil\\n' """
        f"""> challenge/tox.ini; rm challenge/pytest.ini; echo "{evil}" > challenge/evil.py""",
    )
    await host.extracted(slot)
    view = (await host.manager.judge_mounts(slot, JudgeKind.FINAL, "jsb_1")).mounts[0].source
    for tree_root in (slot.final, view):
        marker.write_text("")
        done = run_pytest(tree_root / "challenge")
        assert (marker.read_text() == "owned") is (tree_root == slot.final), done.stdout + done.stderr
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr


def run_pytest(directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=directory,
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
