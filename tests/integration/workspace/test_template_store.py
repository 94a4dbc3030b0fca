"""Unpacked challenges on disk."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from daemon.workspace.baseline import Baseline
from daemon.workspace.model import UnknownTemplateError
from daemon.workspace.templates import TemplateStore
from formats.package import PackageError
from tests.support.challenges import FILES, packed, write_challenge


@pytest.fixture
def package(tmp_path: Path) -> tuple[Path, str]:
    target = tmp_path / "package.tar"
    return target, packed(write_challenge(tmp_path / "challenge"), target)


def store_in(directory: Path) -> TemplateStore:
    directory.mkdir(exist_ok=True)
    return TemplateStore(directory)


def test_what_a_template_holds(tmp_path: Path, package: tuple[Path, str]) -> None:
    path, digest = package
    store = store_in(tmp_path / "store")
    assert not store.has(digest)
    template = store.add(path, digest)
    assert store.has(digest) and store.add(path, digest) == template == store.get(digest)
    assert (template.snapshot / "challenge/src/app.py").stat().st_uid == 1000
    assert (template.tools / "bin/lint").stat().st_uid == 0
    assert (template.hidden / "hidden_tests/regression/test_hidden.py").exists()
    assert (template.hidden / "reference/src/app.py").exists()
    assert template.description.read_text() == FILES["challenge.yaml"]
    assert template.root.stat().st_mode & 0o777 == 0o700
    assert (template.root / "hidden").stat().st_mode & 0o777 == 0o700
    listed = {entry.path.decode() for entry in template.baseline() if entry.type == "file"}
    assert listed == {name.removeprefix("workspace/") for name in FILES if name.startswith("workspace/")}
    assert template.baseline().digest == template.baseline_digest == Baseline.scan(template.snapshot).digest
    assert not list((tmp_path / "store").glob(".new-*"))


def test_baseline_digest_is_the_same_everywhere_and_sees_every_change(tmp_path: Path) -> None:
    digests = {}
    variants = {
        "same": {},
        "again": {},
        "content": {"workspace/challenge/src/app.py": "other\n"},
        "more": {"workspace/challenge/empty": ""},
        "tools": {"workspace/tools/bin/lint": "#!/bin/sh\n"},
        "hidden": {"hidden/reference/src/app.py": "other\n"},
    }
    for name, files in variants.items():
        target = tmp_path / f"{name}.tar"
        digest = packed(write_challenge(tmp_path / name, FILES | files), target)
        digests[name] = store_in(tmp_path / f"{name}.store").add(target, digest).baseline_digest
    assert digests["same"] == digests["again"] == digests["hidden"], "hidden files are no part of Snapshot A"
    assert len({digests[name] for name in ("same", "content", "more", "tools")}) == 4


def test_a_network_file_reaches_no_sandbox_and_no_snapshot(tmp_path: Path) -> None:
    with_file, without = tmp_path / "with.tar", tmp_path / "without.tar"
    files = FILES | {"network/compose.yaml": "services: {a: {network_mode: none}}\n"}
    digest = packed(write_challenge(tmp_path / "with", files), with_file)
    template = store_in(tmp_path / "store").add(with_file, digest)
    assert not [path for path in template.root.rglob("*") if path.name in ("network", "compose.yaml")]
    plain = store_in(tmp_path / "plain").add(without, packed(write_challenge(tmp_path / "without"), without))
    assert template.baseline_digest == plain.baseline_digest


def test_another_digest_is_refused_and_leaves_nothing(tmp_path: Path, package: tuple[Path, str]) -> None:
    store = store_in(tmp_path / "store")
    with pytest.raises(PackageError, match="has the digest"):
        store.add(package[0], "sha256:" + "0" * 64)
    assert os.listdir(tmp_path / "store") == []


def test_an_interrupted_unpacking_is_no_template(
    tmp_path: Path, package: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, digest = package

    def stop(fd: int) -> None:
        raise KeyboardInterrupt

    store = store_in(tmp_path / "store")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", stop)
        with pytest.raises(KeyboardInterrupt):
            store.add(path, digest)
    assert not store.has(digest) and os.listdir(tmp_path / "store") == []
    half = tmp_path / "store" / f".new-{digest.removeprefix('sha256:')}"
    half.mkdir()
    (half / "meta.json").write_text("{}")
    with pytest.raises(UnknownTemplateError, match="upload it first"):
        store_in(tmp_path / "store").get(digest)
    assert store.clean() == [str(half)]
    assert store.add(path, digest).description.exists()


def test_many_adds_at_once_unpack_once(tmp_path: Path, package: tuple[Path, str]) -> None:
    store = store_in(tmp_path / "store")
    with ThreadPoolExecutor(8) as threads:
        templates = list(threads.map(lambda _: store.add(*package), range(16)))
    assert len(set(templates)) == 1 and len(os.listdir(tmp_path / "store")) == 1


@pytest.mark.parametrize("digest", ["", "sha256:", "sha256:../../x", "md5:" + "0" * 64, "sha256:" + "G" * 64])
def test_odd_digests_are_unknown(tmp_path: Path, digest: str) -> None:
    with pytest.raises(UnknownTemplateError):
        store_in(tmp_path / "store").get(digest)


def test_a_challenge_without_optional_parts(tmp_path: Path) -> None:
    files = {name: text for name, text in FILES.items() if not name.startswith(("hidden/", "workspace/tools"))}
    target = tmp_path / "package.tar"
    digest = packed(write_challenge(tmp_path / "challenge", files), target)
    template = store_in(tmp_path / "store").add(target, digest)
    assert list(template.tools.iterdir()) == []
    assert [path.name for path in template.hidden.iterdir()] == ["reference"]
    assert [path.name for path in template.reference_layer.iterdir()] == ["challenge"]
