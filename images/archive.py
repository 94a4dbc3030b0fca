"""Container images as bytes: layers and archives that depend on contents alone, never on when or where they were made.

Owns the formats: a layer is an uncompressed tar with sorted names, one fixed time and numeric owners; an archive is an
OCI layout that also carries Docker's older manifest, so that old and new engines load it. The image's digest is that
of its configuration, whose creation time is the epoch.
"""

import hashlib
import io
import json
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

CLAMPED_TIME = 1_767_225_600
"""2026-01-01 UTC: the time of every file in every layer."""
CREATED = "1970-01-01T00:00:00Z"
TAG_DIGITS = 9
CHUNK_BYTES = 1024 * 1024
_LAYER = "application/vnd.oci.image.layer.v1.tar"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"


@dataclass(frozen=True)
class Layer:
    """A layer on disk."""

    path: Path
    digest: str
    """`sha256:…` of the tar, which is also the layer's diff id: it is not compressed."""
    size: int


@dataclass(frozen=True)
class ImageRef:
    """An image by name and by what it is."""

    tag: str
    """`gauntlet-sandbox:<stack>-<9 hex digits of the digest>`."""
    digest: str
    """`sha256:…` of the image's configuration."""
    layers: tuple[str, ...]
    """The layers' diff ids: what `docker inspect` shows as `RootFS.Layers` in every engine."""


class _Hashing(io.RawIOBase):
    """Writes through to a file and hashes what passes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.hash = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.hash.update(data)
        self.size += len(data)
        self._file.write(data)
        return len(data)


def entries(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield (name in the layer, path) of everything under `root`, parents first, sorted by name's bytes."""
    found: list[tuple[bytes, Path]] = []
    for directory, names, files in os.walk(root):
        for name in (*names, *files):
            path = Path(directory) / name
            found.append((os.fsencode(path.relative_to(root)), path))
    for name_bytes, path in sorted(found):
        yield os.fsdecode(name_bytes), path


def write_layer(root: Path, target: Path) -> Layer:
    """Write the tree under `root` as a layer.

    Hard links stay links (the first name in order is the file); sockets, devices and extended attributes are left
    out, and with them file capabilities.
    """
    with target.open("wb") as file:
        stream = _Hashing(file)
        with tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT, bufsize=CHUNK_BYTES) as tar:
            first_names: dict[tuple[int, int], str] = {}
            for name, path in entries(root):
                _add(tar, name, path, first_names)
    return Layer(target, "sha256:" + stream.hash.hexdigest(), stream.size)


def _add(tar: tarfile.TarFile, name: str, path: Path, first_names: dict[tuple[int, int], str]) -> None:
    found = path.lstat()
    member = tarfile.TarInfo(name)
    member.mtime = CLAMPED_TIME
    member.uid, member.gid = found.st_uid, found.st_gid
    member.mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISDIR(found.st_mode):
        member.type = tarfile.DIRTYPE
        tar.addfile(member)
    elif stat.S_ISLNK(found.st_mode):
        member.type, member.linkname, member.mode = tarfile.SYMTYPE, _link_text(path), 0o777
        tar.addfile(member)
    elif stat.S_ISREG(found.st_mode):
        identity = (found.st_dev, found.st_ino)
        if found.st_nlink > 1 and identity in first_names:
            member.type, member.linkname = tarfile.LNKTYPE, first_names[identity]
            tar.addfile(member)
            return
        first_names[identity] = name
        member.size = found.st_size
        with path.open("rb") as content:
            tar.addfile(member, content)


def _link_text(path: Path) -> str:
    return os.readlink(path)  # noqa: PTH115 - Path.readlink would tidy the text, and a layer keeps it as it is


def canonical(value: Any) -> bytes:
    """Return JSON bytes that depend on the value alone."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def configuration(layers: Sequence[Layer], run: Mapping[str, Any]) -> bytes:
    """Return the image configuration's bytes.

    Args:
        layers: bottom first.
        run: the `config` object (Env, Cmd, WorkingDir, Labels …).
    """
    return canonical(
        {
            "architecture": "amd64",
            "os": "linux",
            "created": CREATED,
            "config": dict(run),
            "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in layers]},
            "history": [{"created": CREATED, "created_by": "gauntlet images"} for _ in layers],
        }
    )


def reference(repository: str, stack: str, layers: Sequence[Layer], config: bytes) -> ImageRef:
    """Return the image's name and digest."""
    hexadecimal = hashlib.sha256(config).hexdigest()
    return ImageRef(
        tag=f"{repository}:{stack}-{hexadecimal[:TAG_DIGITS]}",
        digest="sha256:" + hexadecimal,
        layers=tuple(layer.digest for layer in layers),
    )


def write_archive(target: Path, image: ImageRef, layers: Sequence[Layer], config: bytes) -> None:
    """Write the archive that `docker load` takes."""
    manifest = canonical(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, image.digest, len(config)),
            "layers": [_descriptor(_LAYER, layer.digest, layer.size) for layer in layers],
        }
    )
    manifest_digest = "sha256:" + hashlib.sha256(manifest).hexdigest()
    named = _descriptor(_MANIFEST, manifest_digest, len(manifest)) | {
        "annotations": {
            "io.containerd.image.name": f"docker.io/library/{image.tag}",
            "org.opencontainers.image.ref.name": image.tag.partition(":")[2],
        },
        "platform": {"architecture": "amd64", "os": "linux"},
    }
    older = [
        {
            "Config": _blob(image.digest),
            "RepoTags": [image.tag],
            "Layers": [_blob(layer.digest) for layer in layers],
        }
    ]
    small = {
        "oci-layout": canonical({"imageLayoutVersion": "1.0.0"}),
        "index.json": canonical({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [named]}),
        "manifest.json": canonical(older),
        _blob(image.digest): config,
        _blob(manifest_digest): manifest,
    }
    with tarfile.open(target, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, body in sorted(small.items()):
            tar.addfile(_member(name, len(body)), io.BytesIO(body))
        for layer in {layer.digest: layer for layer in layers}.values():
            with layer.path.open("rb") as content:
                tar.addfile(_member(_blob(layer.digest), layer.size), content)


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = size, 0, 0o644
    return member


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _descriptor(media_type: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest, "size": size}
