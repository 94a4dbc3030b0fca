"""Packing is deterministic, and unpacking is safe whatever comes."""

from __future__ import annotations

import io
import os
import random
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.package import UNPACKED_TIME, Limits, PackageError, digest_of, owner_of, pack, unpack_safely
from formats.problems import FormatError
from tests.support.challenges import FILES, write_challenge


def packed(directory: Path) -> tuple[bytes, str]:
    output = io.BytesIO()
    digest = pack(directory, output)
    return output.getvalue(), digest


def contents(directory: Path) -> dict[str, tuple[str, int, bytes]]:
    """Type, mode and content of everything below a directory."""
    found = {}
    for path in sorted(directory.rglob("*")):
        status = path.lstat()
        if path.is_symlink():
            found[str(path.relative_to(directory))] = ("symlink", 0, os.fsencode(os.readlink(path)))
        elif path.is_dir():
            found[str(path.relative_to(directory))] = ("dir", status.st_mode & 0o7777, b"")
        else:
            found[str(path.relative_to(directory))] = ("file", status.st_mode & 0o7777, path.read_bytes())
    return found


def archive_of(*members: tuple[str, bytes | str | None] | tarfile.TarInfo, whole: bool = True) -> io.BytesIO:
    """A tar with a good challenge in it (if `whole`) and these members: bytes a file, str a link, None a directory."""
    base: list[tuple[str, bytes | str | None] | tarfile.TarInfo] = [
        ("challenge.yaml", b"id: x\n"), ("workspace", None), ("workspace/challenge", None), ("hidden", None),
    ]  # fmt: skip
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as archive:
        for member in (*(base if whole else ()), *members):
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member, io.BytesIO(bytes(member.size)))
                continue
            info = tarfile.TarInfo(member[0])
            info.mode = 0o644
            if member[1] is None:
                info.type, info.mode = tarfile.DIRTYPE, 0o755
            elif isinstance(member[1], str):
                info.type, info.linkname = tarfile.SYMTYPE, member[1]
            else:
                info.size = len(member[1])
            archive.addfile(info, io.BytesIO(member[1]) if isinstance(member[1], bytes) else None)
    output.seek(0)
    return output


def special(name: str, kind: bytes, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    for key, value in fields.items():
        setattr(info, key, value)
    return info


def test_round_trip(tmp_path: Path) -> None:
    challenge = write_challenge(tmp_path / "challenge", FILES | {"network/compose.yaml": "services: {}"})
    (challenge / "workspace/challenge/link").symlink_to("src/app.py")
    (challenge / "workspace/challenge/empty").mkdir(mode=0o755)
    (challenge / "workspace/challenge/empty").chmod(0o755)
    data, digest = packed(challenge)
    target = tmp_path / "target"
    target.mkdir()
    unpack_safely(io.BytesIO(data), target)
    assert contents(target) == contents(challenge)
    assert digest == digest_of(io.BytesIO(data)) and digest.startswith("sha256:")
    for path in target.rglob("*"):
        assert path.lstat().st_mtime == UNPACKED_TIME
        if os.geteuid() == 0:
            expected = owner_of(str(path.relative_to(target)))
            assert (path.lstat().st_uid, path.lstat().st_gid) == expected


def test_equal_directories_give_equal_bytes(tmp_path: Path) -> None:
    one = write_challenge(tmp_path / "one")
    shuffled = list(FILES.items())
    random.Random(1).shuffle(shuffled)
    two = write_challenge(tmp_path / "two", dict(shuffled))
    for number, path in enumerate(sorted(two.rglob("*"))):
        os.utime(path, (number, number))
    for cache in ("workspace/challenge/__pycache__", "workspace/challenge/src/.pytest_cache"):
        (two / cache).mkdir()
        (two / cache / "x").write_text("left by a tool")
    (two / "agents").mkdir()
    (two / "agents/solve.jsonl").write_text("{}")
    assert packed(one) == packed(two)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: (d / "workspace/challenge/src/app.py").write_text("other"),
        lambda d: (d / "workspace/challenge/src/app.py").chmod(0o755),
        lambda d: (d / "workspace/challenge/src/app.py").rename(d / "workspace/challenge/src/app2.py"),
        lambda d: (d / "workspace/challenge/new").mkdir(),
        lambda d: (d / "challenge.yaml").write_text("id: other"),
        lambda d: (d / "hidden/reference/src/app.py").unlink(),
        lambda d: (d / "network/compose.yaml").write_text("services: {a: {network_mode: none}}"),
    ],
)
def test_every_change_gives_another_digest(tmp_path: Path, change: Callable[[Path], object]) -> None:
    challenge = write_challenge(tmp_path / "challenge", FILES | {"network/compose.yaml": "services: {}"})
    before = packed(challenge)[1]
    change(challenge)
    assert packed(challenge)[1] != before


@pytest.mark.parametrize(
    ("spoil", "path", "problem"),
    [
        (lambda d: (d / "challenge.yaml").unlink(), "challenge.yaml", "is missing"),
        (lambda d: shutil.rmtree(d / "workspace/challenge"), "workspace/challenge", "is missing"),
        (lambda d: (d / "workspace/other").mkdir(), "workspace/other", "no part|not part"),
        (lambda d: os.mkfifo(d / "hidden/hidden_tests/pipe"), "hidden/hidden_tests/pipe", "neither file"),
        (lambda d: (d / "workspace/tools/bin/lint").chmod(0o4755), "workspace/tools/bin/lint", "setuid"),
        (lambda d: (d / "workspace/challenge/src").chmod(0o2755), "workspace/challenge/src", "setgid"),
        (lambda d: (d / "workspace/tools/x").symlink_to("/etc/passwd"), "workspace/tools/x", "leaves workspace/"),
        (lambda d: (d / "workspace/tools/x").symlink_to("../../hidden/reference"), "workspace/tools/x", "leaves"),
        (lambda d: (d / "hidden/reference/x").symlink_to("../../workspace/challenge"), "hidden/reference/x", "leaves"),
        (lambda d: (d / "network/x").symlink_to("../hidden/reference/src/app.py"), "network/x", "leaves network/"),
        (lambda d: (d / "network/x").symlink_to("/etc/shadow"), "network/x", "leaves network/"),
    ],
)
def test_directories_that_cannot_be_packed(
    tmp_path: Path, spoil: Callable[[Path], object], path: str, problem: str
) -> None:
    challenge = write_challenge(tmp_path / "challenge", FILES | {"network/compose.yaml": "services: {}"})
    spoil(challenge)
    with pytest.raises(PackageError, match=problem) as caught:
        packed(challenge)
    assert caught.value.path == path and caught.value.remedy
    assert isinstance(caught.value, FormatError) and path in str(caught.value)


@pytest.mark.parametrize(
    ("member", "path", "problem"),
    [
        (("/etc/cron.d/x", b""), "/etc/cron.d/x", "plain relative"),
        (("workspace/../../x", b""), "workspace/../../x", "plain relative"),
        (("./challenge.yaml", b""), "./challenge.yaml", "plain relative"),
        (("workspace/challenge//x", b""), "workspace/challenge//x", "plain relative"),
        (("other/x", b""), "other/x", "not part"),
        (("workspace/submissions", None), "workspace/submissions", "not part"),
        (("network", b"services: {}"), "network", "no directory"),
        (("challenge.yaml", b""), "challenge.yaml", "twice"),
        (("workspace/challenge/a/b", b""), "workspace/challenge/a/b", "no directory before"),
        (("challenge.yaml/x", b""), "challenge.yaml/x", "no directory before"),
        (("workspace/challenge/l", "/workspace/challenge"), "workspace/challenge/l", "leaves workspace/"),
        (("workspace/challenge/l", "../.."), "workspace/challenge/l", "leaves workspace/"),
        (("workspace/challenge/l", "../../workspace/challenge"), "workspace/challenge/l", "leaves workspace/"),
        (("workspace/challenge/l", "l"), "workspace/challenge/l", "loop"),
        (("challenge/" + "x" * 300, b""), "challenge/" + "x" * 300, "longer than"),
        (special("workspace/challenge/d", tarfile.CHRTYPE), "workspace/challenge/d", "neither"),
        (special("workspace/challenge/d", tarfile.BLKTYPE), "workspace/challenge/d", "neither"),
        (special("workspace/challenge/d", tarfile.FIFOTYPE), "workspace/challenge/d", "neither"),
        (special("workspace/challenge/d", tarfile.LNKTYPE, linkname="challenge.yaml"), "workspace/challenge/d",
         "neither"),
        (special("workspace/challenge/s", tarfile.REGTYPE, mode=0o4755), "workspace/challenge/s", "setuid"),
        (special("workspace/challenge/s", tarfile.DIRTYPE, mode=0o2755), "workspace/challenge/s", "setgid"),
    ],
)  # fmt: skip
def test_packages_that_are_refused(tmp_path: Path, member: tarfile.TarInfo, path: str, problem: str) -> None:
    target = tmp_path / "a/b/target"
    target.mkdir(parents=True)
    with pytest.raises(PackageError, match=problem) as caught:
        unpack_safely(archive_of(member), target)
    assert caught.value.path == path and caught.value.remedy
    assert set(os.listdir(tmp_path)) == {"a"} and os.listdir(tmp_path / "a/b") == ["target"]


def test_links_that_leave_through_other_links(tmp_path: Path) -> None:
    """Lexically `up/..` is the directory itself; really it is the parent of where `up` leads."""
    bad = archive_of(
        ("workspace/challenge/a", None), ("workspace/challenge/up", ".."), ("workspace/challenge/out", "up/..")
    )
    with pytest.raises(PackageError, match="leaves workspace/") as caught:
        unpack_safely(bad, tmp_path)
    assert caught.value.path == "workspace/challenge/out"


def test_links_inside_are_kept(tmp_path: Path) -> None:
    good = archive_of(
        ("workspace/challenge/a", None), ("workspace/challenge/up", ".."), ("workspace/challenge/in", "up/challenge/a"),
        ("workspace/challenge/dangling", "nowhere/at/all"),
    )  # fmt: skip
    unpack_safely(good, tmp_path)
    assert os.readlink(tmp_path / "workspace/challenge/in") == "up/challenge/a"
    assert os.readlink(tmp_path / "workspace/challenge/dangling") == "nowhere/at/all"


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    target = tmp_path / "target"
    target.mkdir()
    bad = archive_of(("workspace/challenge/l", str(outside)), ("workspace/challenge/l/x", b"owned"))
    with pytest.raises(PackageError):
        unpack_safely(bad, target)
    assert os.listdir(outside) == []


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        (Limits(total_bytes=10), "too large"),
        (Limits(file_bytes=10), "too large"),
        (Limits(entries=5), "one entry more"),
        (Limits(path_bytes=24), "longer than"),
    ],
)
def test_limits(tmp_path: Path, limits: Limits, problem: str) -> None:
    members = [(f"workspace/challenge/file{number}", bytes(11)) for number in range(3)]
    with pytest.raises(PackageError, match=problem):
        unpack_safely(archive_of(*members), tmp_path, limits)


def test_a_size_that_lies(tmp_path: Path) -> None:
    """A header that claims more than the archive holds."""
    data = bytearray(archive_of(("workspace/challenge/f", bytes(700))).getvalue())
    with pytest.raises(PackageError):
        unpack_safely(io.BytesIO(bytes(data[: data.rindex(b"workspace/challenge/f") + 900])), tmp_path)


def test_sparse_members_are_refused(tmp_path: Path) -> None:
    with tarfile.open(fileobj=(output := archive_of()), mode="a", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("workspace/challenge/sparse")
        info.pax_headers = {"GNU.sparse.map": "0,1", "GNU.sparse.size": str(1 << 40), "GNU.sparse.numblocks": "1"}
        info.size = 1
        archive.addfile(info, io.BytesIO(b"x"))
    with pytest.raises(PackageError, match="neither"):
        unpack_safely(output, tmp_path)


@pytest.mark.parametrize("data", [b"", b"\0" * 10240, b"not a tar" * 1000, b"\x1f\x8b\x08\0" + bytes(600)])
def test_no_archive_at_all(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(PackageError) as caught:
        unpack_safely(io.BytesIO(data), tmp_path)
    assert caught.value.remedy


@settings(max_examples=300, deadline=None)
@given(
    cut=st.one_of(st.none(), st.integers(0, 12_000)),
    flips=st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 255)), max_size=6),
)
def test_damaged_archives_are_refused_or_unpacked_inside(cut: int | None, flips: list[tuple[int, int]]) -> None:
    long_name = "workspace/challenge/" + "n" * 120
    members = (("workspace/challenge/f", b"content"), ("workspace/challenge/l", "f"), (long_name, b"long"))
    original = archive_of(*members).getvalue()
    damaged = bytearray(original)
    for at, value in flips:
        damaged[at % len(damaged)] = value
    with tempfile.TemporaryDirectory() as name:
        target = Path(name) / "outer" / "target"
        target.mkdir(parents=True)
        try:
            unpack_safely(io.BytesIO(bytes(damaged[:cut])), target)
        except PackageError as error:
            assert error.remedy
        assert os.listdir(name) == ["outer"] and os.listdir(Path(name) / "outer") == ["target"]


def _is_name(name: str) -> bool:
    try:
        return name not in (".", "..", "__pycache__") and 0 < len(os.fsencode(name)) < 200
    except UnicodeEncodeError:  # a lone surrogate that stands for no byte
        return False


NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=()), min_size=1, max_size=12).filter(
    _is_name
)


PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


@settings(max_examples=60, deadline=None)
@given(files=st.dictionaries(PATHS, st.tuples(st.binary(max_size=2000), st.booleans()), max_size=8))
def test_any_tree_comes_back(files: dict[str, tuple[bytes, bool]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        challenge = write_challenge(Path(name) / "challenge")
        for relative, (content, executable) in files.items():
            path = challenge / "workspace/challenge/any" / relative
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            except (FileExistsError, NotADirectoryError, IsADirectoryError):
                continue  # one name is a file here and a directory there
            path.chmod(0o755 if executable else 0o600)
        data, digest = packed(challenge)
        assert packed(challenge)[1] == digest
        target = Path(name) / "target"
        target.mkdir()
        unpack_safely(io.BytesIO(data), target)
        assert contents(target) == contents(challenge)
        assert packed(target)[1] == digest, "packing what was unpacked gives the same package"
