"""How file calls must behave, on every kind of box. Classes inherit these tests and provide a fixture `box`."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator

import pytest

from daemon.supervisor.errors import FileFailed
from daemon.supervisor.frames import Frame, encode
from daemon.supervisor.types import Text
from tests.support.supervisor_box import LIVENESS_SECONDS, Box, eventually

KIB, MIB = 1 << 10, 1 << 20
SIZES = [0, 1, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 60 * MIB]


async def failure(awaitable: object) -> str:
    with pytest.raises(FileFailed) as caught:
        await awaitable  # type: ignore[misc]
    return caught.value.errno_name


async def slowly(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def names(box: Box, path: Text = "") -> list[Text]:
    entries, _ = await box.link.list_dir(path)
    return [e.name for e in entries if e.name != box.small]


async def until_empty(box: Box) -> None:
    async def empty() -> bool:
        return not await names(box)

    await eventually(empty)


class FileBehaviour:
    """Contents, names, rights, and what is left after a failure."""

    @pytest.mark.parametrize("size", SIZES)
    async def test_round_trip(self, box: Box, size: int) -> None:
        data = os.urandom(size)
        digest = hashlib.sha256(data).hexdigest()
        async with asyncio.timeout(LIVENESS_SECONDS):
            written = await box.link.write_file("f", data, size=size, sha256=digest)
            reader = box.link.read_file("f")
            assert await reader.read_all(size) == data
        assert (written.size, written.sha256) == (size, digest)
        assert reader.digest == written
        assert await names(box) == ["f"]
        assert (await box.shell("sha256sum <f")).split()[0] == digest

    async def test_parts_and_tiny_chunks(self, box: Box) -> None:
        async def trickle() -> AsyncIterator[bytes]:
            for n in range(3000):
                yield b"%04d" % n

        await box.link.write_file("f", trickle())
        reader = box.link.read_file("f", offset=4 * 2998, length=6)
        assert await reader.read_all(100) == b"299829"
        assert reader.digest is not None
        assert (reader.digest.size, reader.digest.file_size) == (6, 12_000)
        assert await box.link.read_file("f", offset=20_000).read_all(10) == b""

    async def test_a_slow_consumer_gets_everything(self, box: Box) -> None:
        data = os.urandom(3 * MIB)
        await box.link.write_file("f", data)
        got = b""
        async for chunk in box.link.read_file("f"):
            if len(got) % (8 * len(chunk)) == 0:
                await box.link.ping()  # somebody else is served meanwhile
            got += chunk
        assert got == data

    async def test_modes(self, box: Box) -> None:
        await box.link.write_file("new", b"1")
        await box.link.write_file("script", b"1", mode=0o750)
        await box.link.write_file("script", b"22")
        assert await box.shell("stat -c '%a %s %u:%g' new script") == "644 1 1000:1000\n750 2 1000:1000\n"

    async def test_a_wrong_digest_changes_nothing(self, box: Box) -> None:
        await box.link.write_file("f", b"before")
        assert await failure(box.link.write_file("f", b"after", sha256="0" * 64)) == "DIGEST_MISMATCH"
        assert await failure(box.link.write_file("f", b"after", size=4)) == "DIGEST_MISMATCH"
        assert await box.link.read_file("f").read_all(100) == b"before"
        assert await names(box) == ["f"]

    async def test_a_full_disk_is_said_and_leaves_nothing(self, box: Box) -> None:
        target = f"{box.small}/big"
        await box.link.write_file(f"{box.small}/kept", b"kept")
        assert await failure(box.link.write_file(target, bytes(box.small_bytes + MIB))) in ("ENOSPC", "EDQUOT")
        assert await names(box, box.small) == ["kept"]
        await box.link.write_file(target, b"there is room again")

    async def test_an_aborted_write_leaves_nothing(self, box: Box) -> None:
        begun = asyncio.Event()

        async def endless() -> AsyncIterator[bytes]:
            while True:
                yield bytes(64 * KIB)
                begun.set()
                await asyncio.sleep(0.01)

        writing = asyncio.create_task(box.link.write_file("f", endless()))
        await begun.wait()

        async def temporary_file_exists() -> bool:
            return any(str(n).endswith(".tmp") for n in await names(box))

        await eventually(temporary_file_exists)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        await until_empty(box)

    async def test_a_failing_source_leaves_nothing(self, box: Box) -> None:
        async def broken() -> AsyncIterator[bytes]:
            yield b"x" * 100_000
            raise ValueError("the client's upload broke")

        with pytest.raises(ValueError, match="upload broke"):
            await box.link.write_file("f", broken())
        await until_empty(box)

    async def test_errors_are_the_kernels_for_uid_1000(self, box: Box) -> None:
        link = box.link
        await link.mkdir("d")
        await link.write_file("file", b"")
        await box.shell("ln -s /etc/shadow shadow; ln -s loop loop; ln -s nowhere dangling; touch no; chmod 0 no")
        box.fifo("pipe")
        assert await failure(link.read_file("missing").read_all(1)) == "ENOENT"
        assert await failure(link.read_file("d").read_all(1)) == "EISDIR"
        assert await failure(link.read_file("file/x").read_all(1)) == "ENOTDIR"
        assert await failure(link.read_file("shadow").read_all(1)) == "EACCES"
        assert await failure(link.read_file("no").read_all(1)) == "EACCES"
        assert await failure(link.read_file("loop").read_all(1)) == "ELOOP"
        assert await failure(link.read_file("pipe").read_all(1)) == "EINVAL"
        assert await failure(link.read_file("/dev/zero").read_all(1)) == "EINVAL"
        assert await failure(link.read_file("/proc/1/environ").read_all(1)) == "EACCES"
        assert await failure(link.read_file(b"a\0b").read_all(1)) == "EINVAL"
        assert await failure(link.read_file("x" * 300).read_all(1)) == "ENAMETOOLONG"
        assert await failure(link.write_file("d", b"")) == "EISDIR"
        assert await failure(link.write_file("missing/f", b"")) == "ENOENT"
        assert await failure(link.write_file("shadow", b"")) == "EACCES"
        assert await failure(link.write_file("no", b"")) == "EACCES"
        assert await failure(link.write_file("pipe", b"")) == "EINVAL"
        assert await failure(link.write_file("dangling", b"")) == "ENOENT"
        assert await failure(link.write_file("/etc/new", b"")) in ("EACCES", "EROFS")
        assert await failure(link.list_dir("file")) == "ENOTDIR"
        assert await failure(link.list_dir("/root")) == "EACCES"
        assert await failure(link.stat("missing")) == "ENOENT"
        assert await failure(link.mkdir("d")) == "EEXIST"
        assert await failure(link.mkdir("a/b")) == "ENOENT"
        assert await failure(link.remove("missing")) == "ENOENT"

    async def test_writing_through_a_link_keeps_the_link(self, box: Box) -> None:
        await box.link.write_file("real", b"1")
        await box.shell("ln -s real link")
        await box.link.write_file("link", b"22")
        assert await box.shell("readlink link; cat real") == "real\n22"

    async def test_odd_names_and_kinds(self, box: Box) -> None:
        odd = [b"new\nline", b"\xff\xfe", "é".encode(), b"-rf", b" "]
        for name in odd:
            await box.link.write_file(name, name)
        await box.shell("mkdir dir; ln -s '/etc/shadow' link")
        box.fifo("fifo")
        entries, truncated = await box.link.list_dir("")
        listed = {e.name if isinstance(e.name, bytes) else e.name.encode(): e.stat for e in entries}
        listed.pop(box.small.encode(), None)
        assert set(listed) == {*odd, b"dir", b"link", b"fifo"}
        assert not truncated
        assert {listed[n].type for n in odd} == {"file"}
        assert [listed[n].type for n in (b"dir", b"link", b"fifo")] == ["dir", "symlink", "fifo"]
        assert listed[b"link"].target == "/etc/shadow"
        assert (listed[b"\xff\xfe"].size, listed[b"\xff\xfe"].uid, listed[b"\xff\xfe"].mode) == (2, 1000, 0o644)
        for name in odd:
            assert await box.link.read_file(name).read_all(100) == name
        assert (await box.link.stat("link")).type == "symlink"

    async def test_long_listings(self, box: Box) -> None:
        await box.link.mkdir("many")
        await box.shell("cd many && seq -f %05g 1 2000 | xargs touch")
        entries, truncated = await box.link.list_dir("many")
        assert [e.name for e in entries] == [f"{n:05}" for n in range(1, 2001)]
        assert not truncated
        some, truncated = await box.link.list_dir("many", limit=100)
        assert (len(some), truncated) == (100, True)

    async def test_directories(self, box: Box) -> None:
        link = box.link
        await link.mkdir("a/b/c", parents=True)
        await link.mkdir("a/b", parents=True)
        await link.mkdir("private", mode=0o700)
        assert (await link.stat("private")).mode == 0o700
        await link.mkdir("outside")
        await link.write_file("outside/kept", b"1")
        await box.shell("ln -s ../outside a/link; touch a/b/file")
        assert await failure(link.remove("a")) == "ENOTEMPTY"
        await link.remove("a", recursive=True)
        assert await names(box) == ["outside", "private"]
        assert await names(box, "outside") == ["kept"], "a link is removed, not followed"
        await link.remove("outside/kept")
        await link.remove("outside")

    async def test_twenty_calls_at_once(self, box: Box) -> None:
        async def one(n: int) -> bytes:
            data = b"%d" % n * 1000
            await box.link.write_file(f"f{n}", data)
            return data + await box.link.read_file(f"f{n}").read_all(10_000)

        async with asyncio.timeout(LIVENESS_SECONDS):
            got = await asyncio.gather(*(one(n) for n in range(20)))
        assert got == [b"%d" % n * 2000 for n in range(20)]

    @pytest.mark.parametrize("signal", ["KILL", "STOP"])
    async def test_an_idle_worker_hurt_by_the_agent_is_replaced(self, box: Box, signal: str) -> None:
        await box.link.write_file("f", b"1")
        await box.shell(HURT_WORKERS.replace("SIGNAL", signal))
        async with asyncio.timeout(LIVENESS_SECONDS):
            assert await box.link.read_file("f").read_all(10) == b"1"

    async def test_a_worker_killed_in_mid_write_leaves_nothing(self, box: Box) -> None:
        hurt = asyncio.Event()

        async def interrupted() -> AsyncIterator[bytes]:
            yield bytes(256 * KIB)
            await box.shell(HURT_WORKERS.replace("SIGNAL", "KILL"))
            hurt.set()
            for _ in range(100):
                yield bytes(64 * KIB)

        async with asyncio.timeout(LIVENESS_SECONDS):
            assert await failure(box.link.write_file("f", interrupted())) == "EIO"
            assert hurt.is_set()
            await until_empty(box)
            await box.link.write_file("f", b"goes on")

    async def test_what_the_agent_plants_in_a_workers_pipe_goes_nowhere(self, box: Box) -> None:
        """On Linux a worker's descriptors cannot be opened; gVisor shows them to their own uid."""
        forged = b"".join(encode(Frame(kind, stream=n)) for kind in (0x93, 0x84, 0x83, 0xA1) for n in range(50))
        await box.link.write_file("forged", forged)
        assert not (await box.shell(WORKERS + "for p in $w; do cat /proc/$p/mem && echo opened; done; true")).strip()
        running = await box.start("sleep", "300")
        for plant in ("cat forged", "echo rubbish"):
            await box.shell(WORKERS + f"for p in $w; do timeout 5 sh -c '{plant} >/proc/'$p/fd/1; done; true")
            async with asyncio.timeout(LIVENESS_SECONDS):
                await box.link.ping()
                assert await box.link.read_file("forged").read_all(len(forged)) == forged
        assert running.result is None


# Finds the file workers as the agent can: by their command lines.
WORKERS = (
    'w=; for p in /proc/[0-9]*; do case "$(tr "\\0" " " <$p/cmdline 2>/dev/null)" in '
    '*"supervisor file-worker ") w="$w ${p#/proc/}";; esac; done; exec 2>/dev/null; '
)
HURT_WORKERS = WORKERS + 'test -n "$w" && kill -SIGNAL $w'
