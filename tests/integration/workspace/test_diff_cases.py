"""What an agent can do to a workspace, and how the diff shows it. Real overlay, agent's hands as uid 1000."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import tarfile
from pathlib import Path
from typing import Any

import pytest

from daemon.workspace.artifacts import ArtifactLimits
from daemon.workspace.baseline import Baseline
from daemon.workspace.model import DiffResult
from formats.diff import DiffEntry, diff_digest, read_lines
from tests.support.workspaces import Host, agent, agent_python


def entries(result: DiffResult) -> dict[bytes, DiffEntry]:
    with result.entries_path.open("rb") as file:
        listed = list(read_lines(file))
    paths = [entry.path for entry in listed]
    assert paths == sorted(set(paths)), "sorted by path bytes, each path once"
    assert diff_digest(listed) == result.diff_digest
    counts = {change: sum(entry.change == change for entry in listed) for change in ("added", "modified", "deleted")}
    assert counts == {"added": result.added, "modified": result.modified, "deleted": result.deleted}
    return {entry.path: entry for entry in listed}


def changes(result: DiffResult) -> dict[bytes, str]:
    return {path: entry.change for path, entry in entries(result).items()}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param("true", {}, id="nothing"),
        pytest.param("echo x > challenge/new", {b"challenge/new": "added"}, id="create"),
        pytest.param("echo x >> challenge/src/app.py", {b"challenge/src/app.py": "modified"}, id="modify"),
        pytest.param("rm challenge/src/old.py", {b"challenge/src/old.py": "deleted"}, id="delete"),
        pytest.param("touch challenge/src/app.py", {}, id="touch is no change"),
        pytest.param("cp challenge/src/app.py x 2>/dev/null || true; chmod 644 challenge/src/app.py", {}, id="copy up"),
        pytest.param("t=$(cat challenge/docs/a.md); echo $t > challenge/docs/a.md", {}, id="same bytes again"),
        pytest.param("chmod 600 challenge/src/app.py", {b"challenge/src/app.py": "modified"}, id="mode"),
        pytest.param("chmod 700 challenge/src", {b"challenge/src": "modified"}, id="mode of a directory"),
        pytest.param("rm challenge/src/old.py; echo OLD = 1 > challenge/src/old.py", {}, id="removed and made again"),
        pytest.param(
            "mv challenge/src/old.py challenge/src/young.py",
            {b"challenge/src/old.py": "deleted", b"challenge/src/young.py": "added"},
            id="rename",
        ),
        pytest.param(
            "mv challenge/docs challenge/papers",
            {
                b"challenge/docs": "deleted",
                b"challenge/docs/a.md": "deleted",
                b"challenge/docs/deep": "deleted",
                b"challenge/docs/deep/b.md": "deleted",
                b"challenge/papers": "added",
                b"challenge/papers/a.md": "added",
                b"challenge/papers/deep": "added",
                b"challenge/papers/deep/b.md": "added",
            },
            id="rename of a directory",
        ),
        pytest.param(
            "rm -r challenge/docs; mkdir challenge/docs; echo a > challenge/docs/a.md; echo n > challenge/docs/new",
            {
                b"challenge/docs/deep": "deleted",
                b"challenge/docs/deep/b.md": "deleted",
                b"challenge/docs/new": "added",
            },
            id="replaced directory: what is the same again is not listed",
        ),
        pytest.param(
            "rm -r challenge/docs; echo f > challenge/docs",
            {
                b"challenge/docs": "modified",
                b"challenge/docs/a.md": "deleted",
                b"challenge/docs/deep": "deleted",
                b"challenge/docs/deep/b.md": "deleted",
            },
            id="directory to file",
        ),
        pytest.param(
            "rm challenge/briefing.md; mkdir challenge/briefing.md; echo f > challenge/briefing.md/f",
            {b"challenge/briefing.md": "modified", b"challenge/briefing.md/f": "added"},
            id="file to directory",
        ),
        pytest.param(
            "rm -r challenge/docs; ln -s src challenge/docs",
            {
                b"challenge/docs": "modified",
                b"challenge/docs/a.md": "deleted",
                b"challenge/docs/deep": "deleted",
                b"challenge/docs/deep/b.md": "deleted",
            },
            id="directory to link",
        ),
        pytest.param(
            "rm -r challenge/docs/deep; mkdir challenge/docs/deep; rm -r challenge/docs; mkdir -p challenge/docs/deep",
            {b"challenge/docs/a.md": "deleted", b"challenge/docs/deep/b.md": "deleted"},
            id="replaced twice, nested",
        ),
        pytest.param("rmdir submissions/code submissions/docs", dict.fromkeys(
            (b"submissions/code", b"submissions/docs"), "deleted"), id="the empty directories of submissions"),
        pytest.param("mkdir challenge/a; echo > challenge/a/b; echo > challenge/a.b", dict.fromkeys(
            (b"challenge/a", b"challenge/a/b", b"challenge/a.b"), "added"), id="names that sort between"),
    ],
)  # fmt: skip
async def test_change_is_listed(host: Host, script: str, expected: dict[bytes, str]) -> None:
    slot = await host.assigned()
    agent(slot, script)
    assert changes(await host.extracted(slot)) == expected


async def test_fields_of_entries(host: Host) -> None:
    slot = await host.assigned()
    agent(slot, "printf hello > challenge/new; chmod 640 challenge/new; rm challenge/src/old.py; mkdir challenge/d")
    result = await host.extracted(slot)
    assert [json.loads(line) for line in result.entries_path.read_text().splitlines()] == [
        {"path": "challenge/d", "change": "added", "type": "dir", "mode": 0o755, "size": 0, "sha256": None},
        {"path": "challenge/new", "change": "added", "type": "file", "mode": 0o640, "size": 5,
         "sha256": sha256(b"hello")},
        {"path": "challenge/src/old.py", "change": "deleted", "type": "file", "mode": 0o644, "size": 8,
         "sha256": sha256(b"OLD = 1\n")},
    ]  # fmt: skip


async def test_link_to_shadow_stays_a_link(host: Host) -> None:
    secret = host.directory / "secret"
    secret.write_text("not for agents")
    slot = await host.assigned()
    agent(slot, f"ln -s /etc/shadow challenge/shadow; ln -s {host.directory} challenge/out; "
                "rm challenge/src/app.py; ln -s /etc/shadow challenge/src/app.py; "
                "ln -s /etc/shadow submissions/manifest.json")  # fmt: skip
    result = await host.extracted(slot)
    listed = entries(result)
    assert {path: (entry.type, entry.change, entry.sha256, entry.target) for path, entry in listed.items()} == {
        b"challenge/shadow": ("symlink", "added", None, b"/etc/shadow"),
        b"challenge/out": ("symlink", "added", None, os.fsencode(host.directory)),
        b"challenge/src/app.py": ("symlink", "modified", None, b"/etc/shadow"),
        b"submissions/manifest.json": ("symlink", "added", None, b"/etc/shadow"),
    }
    assert result.manifest_digest is None
    assert listed[b"challenge/shadow"].size == len("/etc/shadow")
    with tarfile.open(result.changes_path) as archive:
        members = archive.getmembers()
        assert all(member.issym() for member in members) and len(members) == 4
    assert b"not for agents" not in result.changes_path.read_bytes()


async def test_hard_links_are_files_hashed_once_and_links_in_the_tar(host: Host) -> None:
    slot = await host.assigned()
    agent(slot, "printf data > challenge/one; ln challenge/one challenge/two; ln challenge/src/app.py challenge/app")
    result = await host.extracted(slot)
    listed = entries(result)
    assert changes(result) == dict.fromkeys((b"challenge/one", b"challenge/two", b"challenge/app"), "added")
    assert listed[b"challenge/one"].sha256 == listed[b"challenge/two"].sha256 == sha256(b"data")
    with tarfile.open(result.changes_path) as archive:
        two = archive.getmember("challenge/two")
        assert two.islnk() and two.linkname == "challenge/one"
        content = archive.extractfile(two)
        assert content is not None and content.read() == b"data"


async def test_odd_names_survive(host: Host) -> None:
    names = [b"new\nline", b"\xff\xfe bad", b" lead", b"-rf", b"quote\"'", b"back\\slash", "ünï".encode(), b"\x01\x7f"]
    slot = await host.assigned()
    agent_python(slot, f"import os\nfor n in {names!r}: open(b'challenge/' + n, 'wb').write(n)")
    result = await host.extracted(slot)
    listed = entries(result)
    assert {path: entry.sha256 for path, entry in listed.items()} == {
        b"challenge/" + name: sha256(name) for name in names
    }
    lines = [json.loads(line) for line in result.entries_path.read_bytes().splitlines()]
    bad = [line for line in lines if "path_bytes" in line]
    assert [line["path"] for line in bad] == ["challenge/\ufffd\ufffd bad"]
    assert base64.b64decode(bad[0]["path_bytes"]) == b"challenge/\xff\xfe bad"
    with tarfile.open(result.changes_path, errors="surrogateescape") as archive:
        assert {os.fsencode(name) for name in archive.getnames()} == {b"challenge/" + name for name in names}


DEEP = """
import os
os.chdir("challenge")
for level in range({levels}):
    os.mkdir("{name}"); os.chdir("{name}")
open("end", "w").write("end")
"""


@pytest.mark.parametrize(("levels", "name"), [(200, "d"), (200, "n" * 255), (2500, "d")])
async def test_deep_trees_are_walked(host: Host, levels: int, name: str) -> None:
    """200 levels of 255 bytes are longer than PATH_MAX; 2,500 are more than descriptors and Python's stack hold."""
    slot = await host.assigned()
    agent_python(slot, DEEP.format(levels=levels, name=name))
    result = await host.extracted(slot)
    listed = entries(result)
    assert len(listed) == levels + 1 and result.added == levels + 1
    end = b"challenge/" + b"/".join([name.encode()] * levels) + b"/end"
    assert listed[end].sha256 == sha256(b"end")
    assert not result.truncated


async def test_endless_depth_is_cut_and_said(host: Host) -> None:
    slot = await host.assigned()
    agent_python(slot, DEEP.format(levels=300, name="n" * 255))
    result = await host.extracted(slot)
    assert result.truncated and 256 <= result.added < 300


async def test_specials_are_listed_and_left_out_of_the_tar(host: Host) -> None:
    slot = await host.assigned()
    agent_python(slot, "import os, socket\nos.chdir('challenge')\nos.mkfifo('fifo')\n"
                       "s = socket.socket(socket.AF_UNIX)\ns.bind('socket')")  # fmt: skip
    result = await host.extracted(slot)
    assert {path: (entry.type, entry.size, entry.sha256) for path, entry in entries(result).items()} == {
        b"challenge/fifo": ("fifo", 0, None),
        b"challenge/socket": ("socket", 0, None),
    }
    with tarfile.open(result.changes_path) as archive:
        assert archive.getnames() == []


async def test_sparse_files_cost_their_data_until_the_budget_ends(host: Host) -> None:
    slot = await host.assigned()
    agent_python(slot, "import os\nos.truncate(os.open('challenge/huge', os.O_CREAT | os.O_RDWR), 1 << 40)\n"
                       "f = os.open('challenge/sparse', os.O_CREAT | os.O_RDWR)\n"
                       "os.pwrite(f, b'head', 0); os.pwrite(f, b'tail', 9 << 20)")  # fmt: skip
    result = await host.extracted(slot)
    listed = entries(result)
    assert listed[b"challenge/huge"].size == 1 << 40 and listed[b"challenge/huge"].sha256 is None
    content = b"head" + bytes((9 << 20) - 4) + b"tail"
    assert listed[b"challenge/sparse"].sha256 == sha256(content)
    assert (result.unhashed, result.omitted) == (1, 1)
    with tarfile.open(result.changes_path) as archive:
        assert archive.getnames() == ["challenge/sparse"]
        member = archive.extractfile("challenge/sparse")
        assert member is not None and member.read() == content
    assert result.changes_path.stat().st_blocks * 512 < 1 << 20, "holes stay holes"


async def test_bounds_of_what_is_kept_are_said(host: Host) -> None:
    host.manager = host.new_manager(limits=ArtifactLimits(diff_bytes=1000, changes_bytes=10))
    slot = await host.assigned()
    agent(slot, "for i in $(seq 50); do echo $i > challenge/f$i; done; echo 123456789012 > challenge/big")
    result = await host.extracted(slot)
    assert result.truncated and 0 < result.added < 50
    assert result.entries_path.stat().st_size <= 1000
    assert result.omitted > 0 and result.added == len(entries(result))


async def test_same_script_twice_gives_the_same_digest(host: Host) -> None:
    script = (
        "for i in $(seq 40); do mkdir -p challenge/m/$((i % 7)); echo $i > challenge/m/$((i % 7))/$i; done; "
        "rm -r challenge/docs; ln -s x challenge/docs; mv challenge/src challenge/lib; ls -R > submissions/code/listing"
    )
    digests = []
    for number in range(2):
        slot = await host.assigned()
        agent(slot, script)
        digests.append((await host.extracted(slot, f"att_{number}")).diff_digest)
        await host.manager.destroy(slot)
    assert digests[0] == digests[1]
    slot = await host.assigned()
    agent(slot, "echo other > submissions/code/x")
    assert (await host.extracted(slot, "att_other")).diff_digest not in digests


async def test_manifest_has_its_digest(host: Host) -> None:
    slot = await host.assigned()
    agent(slot, "echo '{\"files\": []}' > submissions/manifest.json")
    result = await host.extracted(slot)
    expected = sha256(b'{"files": []}\n')
    assert result.manifest_digest == f"sha256:{expected}"


async def test_extracting_twice_answers_the_same(host: Host) -> None:
    slot = await host.assigned()
    agent(slot, "echo x > challenge/new")
    first = await host.extracted(slot)
    assert await host.manager.extract(slot, "att_1") == first
    await host.manager.destroy(slot)
    assert first.entries_path.exists(), "artifacts outlive the slot"


def _naive(baseline: Baseline, merged: Path) -> dict[bytes, str]:
    """The same question answered by the plainest means: list the merged tree, compare."""
    before = {entry.path: entry for entry in baseline}
    after = {entry.path: entry for entry in Baseline.scan(merged)}
    result = dict.fromkeys(before.keys() - after.keys(), "deleted")
    result |= dict.fromkeys(after.keys() - before.keys(), "added")
    result |= {path: "modified" for path in before.keys() & after.keys() if before[path] != after[path]}
    return result


OPERATIONS: list[Any] = [
    "rm -rf {a}", "mkdir -p {a}", "echo {n} > {a}/f", "echo {n} > {a}", "mv -T {a} {b}", "cp -rT {a} {b}",
    "ln -sT ../{n} {a}", "ln -T {a}/f {b}", "chmod 7{n}5 {a}", "rm -rf {a}; mkdir {a}; echo x > {a}/one.txt",
    "rm -rf {a}; mkdir -p {a}/one/two; ln -sT one {a}/link", "touch {a}",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
async def test_diff_agrees_with_a_naive_comparison(host: Host, seed: int) -> None:
    chance = random.Random(seed)
    places = [
        "challenge/src", "challenge/docs", "challenge/docs/deep", "challenge/tests", "challenge/tests/data",
        "challenge/tests/data/one.txt", "challenge/x", "challenge/docs/x", "challenge/src.d", "submissions/code",
    ]  # fmt: skip
    slot = await host.assigned()
    steps = [
        f"({chance.choice(OPERATIONS).format(a=chance.choice(places), b=chance.choice(places), n=chance.randrange(8))})"
        " 2>/dev/null || true"
        for _ in range(40)
    ]
    agent(slot, "\n".join(steps))
    template = await host.manager.template(host.digest)
    frozen = await host.manager.freeze(slot)
    expected = _naive(template.baseline(), frozen.merged)
    result = await host.manager.extract(frozen, "att_1")
    assert changes(result) == expected
    assert expected, "forty operations changed something"
