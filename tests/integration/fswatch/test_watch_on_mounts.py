"""What is told of an agent's changes on a real overlay, by either mechanism, and what the end makes of it."""

from __future__ import annotations

import hashlib
import os

import pytest

from tests.support.watched import brief, of, watched
from tests.support.workspaces import Host

BOTH = pytest.mark.parametrize("mechanism", ["fanotify", "inotify"])
EMPTY = hashlib.sha256(b"").hexdigest()


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@BOTH
async def test_a_story_is_told_in_order_with_sizes_and_hashes(host: Host, mechanism: str):
    async with watched(host, mechanism) as it:
        it.run("echo one > submissions/a; touch submissions/empty; ln -s /etc/shadow submissions/link")
        await it.seen(lambda events: len(events) >= 4)
        it.run("mv submissions/a submissions/b; rm challenge/src/old.py; echo more >> challenge/src/app.py")
        events = await it.seen(lambda events: len(events) >= 8)
        assert brief(events)[:1] == [("CREATE", "submissions/a")]
        assert set(brief(events)) == {
            ("CREATE", "submissions/a"),
            ("MODIFY", "submissions/a"),
            ("CREATE", "submissions/empty"),
            ("CREATE", "submissions/link"),
            ("MOVED_FROM", "submissions/a"),
            ("MOVED_TO", "submissions/b"),
            ("DELETE", "challenge/src/old.py"),
            ("MODIFY", "challenge/src/app.py"),
        }
        written = of(events, b"submissions/a")[1]
        assert (written["file_size_bytes"], written["content_hash_sha256"]) == (4, sha(b"one\n"))
        assert of(events, b"submissions/b")[0]["content_hash_sha256"] == sha(b"one\n")
        assert of(events, b"submissions/empty")[0]["content_hash_sha256"] == EMPTY
        link = of(events, b"submissions/link")[0]
        assert (link["file_type"], link["file_size_bytes"], link["content_hash_sha256"]) == ("symlink", 11, None)
        app = of(events, b"challenge/src/app.py")[0]
        assert app["content_hash_sha256"] == sha(b"def add(a, b):\n    return a - b\nmore\n")
        assert all("source" not in line for line in events)
        finish = await it.end()
        assert finish.reconciled == 0
        assert await it.disagreements() == []


@BOTH
async def test_eight_hundred_directories_at_full_speed(host: Host, mechanism: str):
    async with watched(host, mechanism) as it:
        it.run("cd submissions; for n in $(seq 800); do mkdir -p d$n/b/c; echo $n > d$n/b/c/f; done")
        await it.end()
        assert await it.disagreements() == []
        events = await it.events()
        for number in range(1, 801):
            last = of(events, b"submissions/d%d/b/c/f" % number)[-1]
            assert last["content_hash_sha256"] == sha(b"%d\n" % number)
        assert not [line for line in await it.lines() if "gap" in line]


async def test_fanotify_needs_no_reconcile_for_them(host: Host):
    async with watched(host) as it:
        it.run("cd submissions; for n in $(seq 800); do mkdir -p d$n/b/c; echo $n > d$n/b/c/f; done")
        assert (await it.end()).reconciled == 0


@BOTH
async def test_renamed_directories_take_their_content_along(host: Host, mechanism: str):
    async with watched(host, mechanism) as it:
        it.run("mkdir -p submissions/a/deep; echo 1 > submissions/a/deep/f")
        await it.seen(lambda events: any(line["content_hash_sha256"] == sha(b"1\n") for line in events))
        it.run(
            "mv submissions/a submissions/b; echo 2 > submissions/b/deep/g;"
            "mkdir submissions/a; echo 3 > submissions/a/h"
        )
        wanted = {sha(b"1\n"), sha(b"2\n"), sha(b"3\n")}
        moved = (b"submissions/b/deep/f", b"submissions/b/deep/g", b"submissions/a/h")
        events = await it.seen(
            lambda events: {line["content_hash_sha256"] for path in moved for line in of(events, path)} >= wanted
        )
        assert ("MODIFY", "submissions/b/deep/g") in brief(events)
        assert not of(events, b"submissions/a/deep/g")
        assert of(events, b"submissions/b/deep/f")[0]["source"] == "rescan"
        assert of(events, b"submissions/b/deep/f")[0]["content_hash_sha256"] == sha(b"1\n")
        await it.end()
        assert await it.disagreements() == []
        gone = of(await it.events(), b"submissions/a/deep/f")[-1]
        assert (gone["event_type"], gone["source"]) == ("DELETE", "reconcile")


@BOTH
async def test_a_directory_renamed_while_it_fills(host: Host, mechanism: str):
    async with watched(host, mechanism) as it:
        it.python(
            "import os\n"
            "os.chdir('submissions')\n"
            "for n in range(300):\n"
            "    os.mkdir(f'x{n}')\n"
            "    open(f'x{n}/before', 'w').write(str(n))\n"
            "    os.rename(f'x{n}', f'y{n}')\n"
            "    open(f'y{n}/after', 'w').write(str(n))\n"
        )
        await it.end()
        assert await it.disagreements() == []
        if mechanism == "fanotify":  # told where it was when it happened, though read later
            events = await it.events()
            for number in range(300):
                assert of(events, b"submissions/x%d/before" % number)[0]["event_type"] == "CREATE"
                assert of(events, b"submissions/y%d/after" % number)[0]["event_type"] == "CREATE"


async def test_what_is_created_and_deleted_at_once_is_told(host: Host):
    async with watched(host) as it:
        it.python(
            "import os\n"
            "for n in range(500):\n"
            "    open(f'submissions/f{n}', 'w').write('x'); os.unlink(f'submissions/f{n}')\n"
            "    os.makedirs(f'submissions/d{n}/e'); open(f'submissions/d{n}/e/f', 'w').close()\n"
            "    os.unlink(f'submissions/d{n}/e/f'); os.rmdir(f'submissions/d{n}/e'); os.rmdir(f'submissions/d{n}')\n"
        )
        await it.end()
        assert await it.disagreements() == []
        events = await it.events()
        for number in range(500):
            for path in (b"f%d", b"d%d", b"d%d/e", b"d%d/e/f"):
                kinds = [line["event_type"] for line in of(events, b"submissions/" + path % number)]
                assert (kinds[0], kinds[-1]) == ("CREATE", "DELETE")


async def test_a_storm_of_writes_is_one_event(host: Host):
    async with watched(host) as it:
        it.python(
            "import time\n"
            "with open('submissions/log', 'wb', buffering=0) as file:\n"
            "    for n in range(2000):\n"
            "        file.write(b'x' * 100)\n"
        )
        events = await it.seen(lambda events: any(line["file_size_bytes"] == 200_000 for line in events))
        assert brief(events)[0] == ("CREATE", "submissions/log")
        modified = [line for line in events if line["event_type"] == "MODIFY"]
        assert len(modified) <= 3  # a slow machine may pause the writer for a quiet period
        assert modified[-1]["content_hash_sha256"] == sha(b"x" * 200_000)


async def test_a_mapped_write_is_found_at_the_end_only(host: Host):
    async with watched(host) as it:
        it.run("printf aaaa > submissions/map")
        await it.seen(lambda events: any(line["file_size_bytes"] == 4 for line in events))
        it.python(
            "import mmap\n"
            "with open('submissions/map', 'r+b') as file:\n"
            "    memory = mmap.mmap(file.fileno(), 4); memory[:4] = b'bbbb'; memory.flush()\n"
        )
        finish = await it.end(crashed=True)
        assert finish.suspects == (b"submissions/map",)
        last = of(await it.events(), b"submissions/map")[-1]
        assert (last["event_type"], last["source"]) == ("MODIFY", "reconcile")
        assert last["content_hash_sha256"] == sha(b"bbbb")
        assert await it.disagreements() == []


async def test_a_hard_links_other_names_are_told_at_the_end(host: Host):
    async with watched(host) as it:
        it.run("echo a > submissions/one; ln submissions/one submissions/two; sleep 0.3; echo b >> submissions/one")
        await it.end()
        assert await it.disagreements() == []


async def test_odd_names_are_told_exactly(host: Host):
    async with watched(host) as it:
        it.python("import os\nos.mkdir(b'submissions/d\\xff'); open(b'submissions/d\\xff/\\x80\\n', 'w').write('1')")
        await it.end()
        events = of(await it.events(), b"submissions/d\xff/\x80\n")
        assert events[-1]["file_path"] == "submissions/d\ufffd/\ufffd\n"
        assert events[-1]["content_hash_sha256"] == sha(b"1")
        assert await it.disagreements() == []


@BOTH
async def test_deep_paths(host: Host, mechanism: str):
    async with watched(host, mechanism) as it:
        it.python(
            "import os\n"
            "os.chdir('submissions')\n"
            "for n in range(60):\n"
            "    os.mkdir('n' * 200); os.chdir('n' * 200)\n"
            "open('leaf', 'w').write('deep')\n"
        )
        await it.end()
        assert await it.disagreements() == []
        assert of(await it.events(), b"submissions/" + b"/".join([b"n" * 200] * 60) + b"/leaf")


async def test_links_lead_the_host_nowhere(host: Host):
    secret = host.directory / "secret"
    secret.write_text("secret")
    async with watched(host) as it:
        it.run(
            f"ln -s {secret} submissions/file; ln -s {host.directory} submissions/dir; ln -s . submissions/loop;"
            "mkfifo submissions/pipe; ln -s /proc/self/environ submissions/env"
        )
        await it.end()
        assert await it.disagreements() == []
        told = {line["content_hash_sha256"] for line in await it.events()}
        assert told == {None}


async def test_every_kind_of_change_agrees_with_the_diff(host: Host):
    async with watched(host) as it:
        it.run(
            "rm -r challenge/docs; mkdir challenge/docs; echo o > challenge/docs/other;"
            "mv challenge/tests challenge/moved; chmod 600 challenge/pytest.ini; rm challenge/briefing.md;"
            "ln -s nowhere challenge/briefing.md; cp challenge/conftest.py challenge/t;"
            "mv challenge/t challenge/conftest.py"
        )
        await it.end()
        assert it.diff is not None and it.diff.deleted
        assert await it.disagreements() == []


async def test_sparse_giants_are_not_read_while_the_agent_works(host: Host):
    async with watched(host) as it:
        it.run("truncate -s 8G submissions/giant; echo x > submissions/small")
        events = await it.seen(lambda events: any(line["file_size_bytes"] == 8 << 30 for line in events))
        giant = [line for line in of(events, b"submissions/giant") if line["file_size_bytes"]]
        assert giant[0]["content_hash_sha256"] is None
        os.truncate(it.slot.merged / "submissions/giant", 0)
        await it.end()
        assert await it.disagreements() == []


async def test_nothing_of_the_platforms_own_is_told(host: Host):
    async with watched(host) as it:
        it.run("echo x > submissions/x")
        events = await it.seen(lambda events: any(line["file_size_bytes"] == 2 for line in events))
        count = len(events)
        for path in it.slot.merged.rglob("*"):
            if path.is_file():
                path.read_bytes()
        it.run("cat submissions/x")
        await it.end()
        assert len(await it.events()) == count
