"""Layers and archives: bytes that depend on contents alone, in a form that old and new engines read."""

import hashlib
import io
import json
import os
import tarfile
import time
from pathlib import Path

import pytest

from images import archive


def tree(root: Path, order: list[str]) -> Path:
    root.mkdir()
    for name in order:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"contents of {name}", encoding="utf-8")
    return root


def members(path: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(path) as tar:
        return {member.name: member for member in tar.getmembers()}


def test_order_and_time_of_creation_do_not_matter(tmp_path: Path) -> None:
    names = ["b/x", "a", "b-c", "z/y/w", "b/a"]
    first = archive.write_layer(tree(tmp_path / "1", names), tmp_path / "1.tar")
    second_root = tree(tmp_path / "2", names[::-1])
    for number, path in enumerate(sorted(second_root.rglob("*"))):
        os.utime(path, (number, number))
    second = archive.write_layer(second_root, tmp_path / "2.tar")
    assert first.digest == second.digest
    assert first.path.read_bytes() == second.path.read_bytes()


def test_the_digest_is_that_of_the_file(tmp_path: Path) -> None:
    layer = archive.write_layer(tree(tmp_path / "t", ["a", "b"]), tmp_path / "l.tar")
    body = layer.path.read_bytes()
    assert layer.digest == "sha256:" + hashlib.sha256(body).hexdigest()
    assert layer.size == len(body)


@pytest.mark.parametrize("change", ["contents", "mode", "owner", "name"])
def test_what_matters_changes_the_digest(tmp_path: Path, change: str) -> None:
    root = tree(tmp_path / "t", ["a"])
    before = archive.write_layer(root, tmp_path / "1.tar").digest
    match change:
        case "contents":
            (root / "a").write_text("other")
        case "mode":
            (root / "a").chmod(0o755)
        case "owner":
            os.chown(root / "a", 1000, 1000)
        case _:
            (root / "a").rename(root / "b")
    assert archive.write_layer(root, tmp_path / "2.tar").digest != before


def test_links_are_kept_and_specials_left_out(tmp_path: Path) -> None:
    root = tree(tmp_path / "t", ["file"])
    os.link(root / "file", root / "hard")
    (root / "soft").symlink_to("./../etc//shadow")
    os.mkfifo(root / "fifo")
    found = members(archive.write_layer(root, tmp_path / "l.tar").path)
    assert set(found) == {"file", "hard", "soft"}
    assert found["hard"].islnk() and found["hard"].linkname == "file"
    assert found["soft"].issym() and found["soft"].linkname == "./../etc//shadow"


def test_every_time_is_the_same(tmp_path: Path) -> None:
    found = members(archive.write_layer(tree(tmp_path / "t", ["a/b", "c"]), tmp_path / "l.tar").path)
    assert {member.mtime for member in found.values()} == {archive.CLAMPED_TIME}
    assert time.time() > archive.CLAMPED_TIME


def test_the_tag_begins_with_the_digest_of_the_configuration(tmp_path: Path) -> None:
    layer = archive.write_layer(tree(tmp_path / "t", ["a"]), tmp_path / "l.tar")
    config = archive.configuration([layer], {"Cmd": ["/x"]})
    image = archive.reference("repo", "stack", [layer], config)
    assert image.digest == "sha256:" + hashlib.sha256(config).hexdigest()
    assert image.tag == f"repo:stack-{image.digest[7:16]}"
    assert json.loads(config)["created"] == "1970-01-01T00:00:00Z"
    assert image.layers == (layer.digest,)


def test_the_archive_holds_what_it_names_for_both_readers(tmp_path: Path) -> None:
    layer = archive.write_layer(tree(tmp_path / "t", ["a"]), tmp_path / "l.tar")
    config = archive.configuration([layer], {"Cmd": ["/x"]})
    image = archive.reference("repo", "stack", [layer], config)
    archive.write_archive(tmp_path / "image.tar", image, [layer], config)
    with tarfile.open(tmp_path / "image.tar") as tar:
        files = {m.name: (tar.extractfile(m) or io.BytesIO()).read() for m in tar.getmembers()}
    for name, body in files.items():
        if name.startswith("blobs/sha256/"):
            assert name == "blobs/sha256/" + hashlib.sha256(body).hexdigest()
    older = json.loads(files["manifest.json"])[0]
    assert older["RepoTags"] == [image.tag]
    assert {older["Config"], *older["Layers"]} <= set(files)
    newer = json.loads(files["index.json"])["manifests"][0]
    manifest = json.loads(files["blobs/" + newer["digest"].replace(":", "/")])
    assert manifest["config"]["digest"] == image.digest
    assert [found["digest"] for found in manifest["layers"]] == [layer.digest]
