"""The package of a challenge: a deterministic tar, known by its SHA-256.

Owns packing, the rules of what a package may hold, and unpacking that cannot write or point outside its destination.
Whether `challenge.yaml` makes sense is `formats.challenge`; where packages are kept is the services' matter.

Equal directories give equal bytes: entries sorted by path, times zero, owners by rule (`owner_of`), GNU headers (they
carry any name without extra records). Directories that tools leave behind (`CACHES`) are not packed.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal

from formats.challenge import DESCRIPTION, HIDDEN, NETWORK, PACKED, WORKSPACE
from formats.problems import FormatError, Problem

CACHES = frozenset({"__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})
# Of every unpacked entry: two nodes must show an agent the same times. Not 0, which zip archives cannot hold.
UNPACKED_TIME = 946684800
MAX_LINK_HOPS = 40  # as the kernel counts them
_CHUNK = 1 << 20
Kind = Literal["file", "dir", "symlink"]


class PackageError(FormatError):
    """A directory that cannot be packed, or a package that is refused. Says where, what and the remedy."""

    def __init__(self, path: str, problem: str, remedy: str) -> None:
        super().__init__([Problem(path.encode("utf-8", "backslashreplace").decode(), "", problem, remedy)])
        self.path, self.problem, self.remedy = path, problem, remedy


@dataclass(frozen=True)
class Limits:
    """What a package may cost whoever unpacks it."""

    total_bytes: int = 1 << 30
    file_bytes: int = 512 << 20
    entries: int = 100_000
    path_bytes: int = 1024


@dataclass
class _Rules:
    """Everything a package must obey, checked entry by entry, the same when packing and unpacking."""

    limits: Limits
    kinds: dict[str, Kind] = field(default_factory=lambda: {"": "dir"})
    links: dict[str, str] = field(default_factory=dict)
    total: int = 0

    def add(self, path: str, kind: Kind, mode: int, size: int, target: str) -> None:
        parts = path.split("/")
        self._check_name(path, parts)
        if path in self.kinds:
            raise PackageError(path, "appears twice", "pack the directory again")
        if len(self.kinds) > self.limits.entries:
            raise PackageError(path, f"is one entry more than {self.limits.entries}", "make the challenge smaller")
        if mode & (stat.S_ISUID | stat.S_ISGID) and kind != "symlink":
            raise PackageError(path, "has a setuid or setgid bit", "chmod ug-s it")
        if self.kinds.get("/".join(parts[:-1])) != "dir":
            raise PackageError(path, "has no directory before it in the package", "pack the directory with gauntlet")
        if kind == "file":
            self.total += size
            if not 0 <= size <= self.limits.file_bytes or self.total > self.limits.total_bytes:
                limits = f"{self.limits.file_bytes} bytes a file, {self.limits.total_bytes} in all"
                raise PackageError(path, f"makes the package too large ({limits})", "make the challenge smaller")
        self.kinds[path] = kind
        if kind == "symlink":
            self.links[path] = target

    def _check_name(self, path: str, parts: list[str]) -> None:
        if path.startswith("/") or any(part in ("", ".", "..") for part in parts) or "\0" in path:
            raise PackageError(path, "is no plain relative path", "pack the directory with gauntlet")
        encoded = path.encode("utf-8", "surrogateescape")
        if len(encoded) > self.limits.path_bytes or any(len(os.fsencode(part)) > 255 for part in parts):
            raise PackageError(path, f"is a name longer than {self.limits.path_bytes} bytes (255 a part)", "shorten it")
        known = {"": PACKED, "workspace": tuple(WORKSPACE), "hidden": tuple(HIDDEN)}
        for parent, name in (("", parts[0]), (parts[0], parts[1] if len(parts) > 1 else None)):
            if name is not None and parent in known and name not in known[parent]:
                raise PackageError(
                    path, "is not part of a challenge", f"known here: {', '.join(sorted(known[parent]))}"
                )

    def finish(self) -> None:
        """What only shows at the end: the required parts, and where links lead."""
        for path, kind in ((DESCRIPTION, "file"), ("workspace/challenge", "dir")):
            if self.kinds.get(path) != kind:
                raise PackageError(path, "is missing", f"a challenge has this {kind}")
        for part in ("workspace", "workspace/tools", "hidden", NETWORK, *(f"hidden/{name}" for name in HIDDEN)):
            if self.kinds.get(part, "dir") != "dir":
                raise PackageError(part, "is no directory", "make it one, or leave it out")
        for path, target in self.links.items():
            self._resolve(path, target)

    def _resolve(self, link: str, target: str) -> None:
        """Follow `target` through the package's own entries; leaving its part at any step is refused."""
        root = link.split("/", 1)[0]
        problem, remedy = f"is a link to {target!r}, which leaves {root}/", f"link inside {root}/, relative"
        if not target or target.startswith("/") or "\0" in target:
            raise PackageError(link, problem, remedy)
        at, todo, hops = link.split("/")[:-1], target.split("/")[::-1], 1
        while todo:
            step = todo.pop()
            if step in ("", "."):
                continue
            at = at[:-1] if step == ".." else [*at, step]
            if not at or at[0] != root:
                raise PackageError(link, problem, remedy)
            onward = self.links.get("/".join(at))
            if onward is not None:
                hops += 1
                if hops > MAX_LINK_HOPS:
                    raise PackageError(link, "is part of a loop of links", "remove the loop")
                if onward.startswith("/"):
                    raise PackageError(link, problem, remedy)
                at, todo = at[:-1], todo + onward.split("/")[::-1]


def owner_of(path: str) -> tuple[int, int]:
    """uid and gid of an unpacked entry: the agent's for what it may change, root's for the rest."""
    return (1000, 1000) if path == "workspace/challenge" or path.startswith("workspace/challenge/") else (0, 0)


def digest_of(package: BinaryIO) -> str:
    """`sha256:…` of a package's bytes, from its beginning."""
    package.seek(0)
    digest = hashlib.sha256()
    while chunk := package.read(_CHUNK):
        digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"


def pack(directory: Path, output: BinaryIO, limits: Limits = Limits()) -> str:
    """Write the package of a challenge directory and return its digest. Raises PackageError.

    `output` must be seekable and readable, and stands at its end afterwards.
    """
    rules = _Rules(limits)
    with tarfile.open(
        fileobj=output, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape"
    ) as archive:
        for path in _paths(directory):
            _pack_one(archive, rules, directory, path)
    rules.finish()
    output.flush()
    return digest_of(output)


def _paths(directory: Path) -> Iterator[str]:
    """Every path to pack, relative, sorted by bytes."""
    found: list[str] = []
    todo = [name for name in PACKED if os.path.lexists(directory / name)]
    while todo:
        path = todo.pop()
        found.append(path)
        if (directory / path).is_dir() and not (directory / path).is_symlink():
            todo += [f"{path}/{name}" for name in os.listdir(directory / path) if name not in CACHES]  # noqa: PTH208
    return iter(sorted(found, key=os.fsencode))


def _pack_one(archive: tarfile.TarFile, rules: _Rules, directory: Path, path: str) -> None:
    status = (directory / path).lstat()
    member = tarfile.TarInfo(path)
    member.mode = stat.S_IMODE(status.st_mode) & 0o777
    member.uid, member.gid = owner_of(path)
    if stat.S_ISLNK(status.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, os.readlink(directory / path)  # noqa: PTH115 (exact)
        rules.add(path, "symlink", 0, 0, member.linkname)
        archive.addfile(member)
    elif stat.S_ISDIR(status.st_mode):
        member.type = tarfile.DIRTYPE
        rules.add(path, "dir", status.st_mode, 0, "")
        archive.addfile(member)
    elif stat.S_ISREG(status.st_mode):
        rules.add(path, "file", status.st_mode, status.st_size, "")
        member.size = status.st_size
        with os.fdopen(os.open(directory / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as source:
            try:
                archive.addfile(member, source)
            except OSError as error:  # tarfile's way of saying that the file became shorter
                raise PackageError(path, f"cannot be read whole: {error}", "pack it while nothing writes") from error
    else:
        raise PackageError(path, "is neither file, directory nor link", "remove it")


def unpack_safely(package: BinaryIO, destination: Path, limits: Limits = Limits()) -> None:
    """Unpack into the empty directory `destination`; owners by `owner_of` when root. Raises PackageError.

    Links are made last, so that nothing is ever written through one. On an error the destination holds a part of the
    package: the caller removes it.
    """
    rules = _Rules(limits)
    most = limits.total_bytes + 4 * tarfile.BLOCKSIZE * limits.entries  # header and padding of every entry
    if package.seek(0, os.SEEK_END) > most:
        raise PackageError("package", f"is larger than {most} bytes", "make the challenge smaller")
    try:
        package.seek(0)
        with tarfile.open(fileobj=package, mode="r:", encoding="utf-8", errors="surrogateescape") as archive:
            for member in archive:
                _unpack_one(archive, member, rules, destination)
            package.seek(archive.offset)
            if package.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
                raise PackageError("package", "breaks off or is damaged", "send it again")
    except (tarfile.TarError, EOFError, ValueError, ArithmeticError, LookupError, RecursionError) as error:
        if isinstance(error, PackageError):
            raise
        raise PackageError("package", f"is no tar archive: {error}", "pack the directory with gauntlet") from error
    rules.finish()
    for path, target in rules.links.items():
        (destination / path).symlink_to(target)
    for path in filter(None, rules.kinds):
        if os.geteuid() == 0:
            os.chown(destination / path, *owner_of(path), follow_symlinks=False)
        os.utime(destination / path, (UNPACKED_TIME, UNPACKED_TIME), follow_symlinks=False)


def _unpack_one(archive: tarfile.TarFile, member: tarfile.TarInfo, rules: _Rules, destination: Path) -> None:
    path = member.name
    if member.type == tarfile.SYMTYPE:
        rules.add(path, "symlink", 0, 0, member.linkname)
    elif member.type == tarfile.DIRTYPE:
        rules.add(path, "dir", member.mode, 0, "")
        (destination / path).mkdir()
        (destination / path).chmod(member.mode & 0o777)
    elif member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and member.sparse is None:
        rules.add(path, "file", member.mode, member.size, "")
        source = archive.extractfile(member)
        assert source is not None  # a regular member
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(destination / path, flags, 0o600), "wb") as output:
            left = member.size
            while left:
                chunk = source.read(min(left, _CHUNK))
                if not chunk:
                    raise PackageError(path, "breaks off", "send the package again")
                output.write(chunk)
                left -= len(chunk)
            os.fchmod(output.fileno(), member.mode & 0o777)
    else:
        remedy = "copy the file" if member.type == tarfile.LNKTYPE else "remove it"
        raise PackageError(path, "is neither file, directory nor symbolic link", remedy)
