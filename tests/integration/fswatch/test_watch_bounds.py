"""Where the watch meets its limits: it says so, and the end still agrees with the diff."""

from __future__ import annotations

import asyncio
import ctypes
import os
from pathlib import Path

import pytest

from daemon.fswatch import attempt as attempt_module
from daemon.fswatch import content, inbox, inotify, probe
from daemon.fswatch.changes import RESCAN
from daemon.fswatch.final import Finish
from daemon.fswatch.fullness import Fullness
from daemon.telemetry.recorder import Recorder
from daemon.workspace import mountinfo
from tests.support.watched import ATTEMPT, of, watched
from tests.support.workspaces import Host, agent, agent_python

MANY = "cd submissions; for n in $(seq 300); do mkdir d$n; echo $n > d$n/f; done; rm -r d7"


async def gaps(it) -> list[tuple[str, int | None]]:
    found = [line["gap"] for line in await it.lines() if "gap" in line]
    return [(gap["reason"], None if gap["last"] is None else gap["last"] - gap["first"] + 1) for gap in found]


async def test_what_the_inbox_cannot_hold_is_counted(host: Host, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inbox.Inbox.__init__, "__defaults__", (10_000,))
    stuck = asyncio.Event()
    record = Recorder.record

    async def waits(self, *given):
        await stuck.wait()
        return await record(self, *given)

    monkeypatch.setattr(Recorder, "record", waits)
    async with watched(host) as it:
        it.run(MANY)
        await asyncio.wrap_future(it.watch._reader.drain(it.watch._watches[ATTEMPT]))
        stuck.set()
        await it.end()
        assert await it.disagreements() == []
        said = await gaps(it)
        assert said and all(reason == attempt_module.OVERFLOW and count for reason, count in said)
        told = [line for line in await it.events() if line.get("source") != "reconcile"]
        # mkdir, creation and write of 300, and three removals; the kernel may have merged creation and write.
        assert len(told) + sum(count or 0 for _, count in said) >= 603


async def test_an_inotify_queue_that_overflowed_is_said_and_all_is_listed_again(host: Host):
    slot = await host.assigned()
    source = inotify.InotifySource(slot.merged)
    try:
        agent_python(
            slot,
            "import os\n"
            "for n in range(9000):\n"
            "    os.close(os.open(f'submissions/f{n}', os.O_CREAT)); os.unlink(f'submissions/f{n}')\n"
            "os.makedirs('submissions/late/deep'); open('submissions/late/deep/f', 'w').close()\n",
        )
        batches = []
        while (batch := source.read()) is not None:
            batches.append(batch)
        assert any(batch.overflow for batch in batches)
        found = {change.path for batch in batches for change in batch.changes if change.source == RESCAN}
        assert b"submissions/late/deep/f" in found
        agent(slot, "echo 1 > submissions/late/deep/g")  # what is listed is watched as well
        batch = source.read()
        assert batch is not None and b"submissions/late/deep/g" in {change.path for change in batch.changes}
    finally:
        source.close()


async def test_without_a_budget_hashes_come_at_the_end(host: Host, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(content, "LIVE_FILE_BYTES", 10)
    async with watched(host) as it:
        it.run("echo short > submissions/short; seq 1000 > submissions/long")
        events = await it.seen(lambda events: {line["file_size_bytes"] for line in events} >= {6, 3893})
        long = [line for line in of(events, b"submissions/long") if line["file_size_bytes"]]
        assert [line["content_hash_sha256"] for line in long] == [None]
        finish = await it.end(crashed=True)
        assert finish.suspects == (b"submissions/long",)
        assert of(await it.events(), b"submissions/long")[-1]["source"] == "reconcile"
        assert await it.disagreements() == []


async def test_when_no_group_is_left_inotify_takes_over(host: Host):
    libc = ctypes.CDLL(None, use_errno=True)
    groups = []
    while (fd := libc.fanotify_init(0x1, os.O_RDONLY)) >= 0:
        groups.append(fd)
    try:
        assert groups
        async with watched(host) as it:
            assert isinstance(it.watch._watches[ATTEMPT].source, inotify.InotifySource)
            it.run("mkdir submissions/d; echo 1 > submissions/d/f")
            await it.seen(lambda events: of(events, b"submissions/d/f"))
            await it.end()
            assert await it.disagreements() == []
    finally:
        for fd in groups:
            os.close(fd)


async def test_without_any_watch_the_end_tells_everything(host: Host, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_):
        raise OSError(28, "no watches left")

    monkeypatch.setattr("daemon.fswatch.facade.FanotifySource", refuse)
    monkeypatch.setattr("daemon.fswatch.facade.InotifySource", refuse)
    async with watched(host) as it:
        it.run(MANY)
        await it.end()
        assert await it.disagreements() == []
        assert await gaps(it) == [("watch_unavailable", None)]
        assert {line["source"] for line in await it.events()} == {"reconcile"}


async def test_a_later_life_tells_what_changed_while_it_was_away(host: Host):
    async with watched(host) as it:
        it.run("echo 1 > submissions/kept; echo 1 > submissions/gone; echo 1 > submissions/grown")
        await it.seen(lambda events: sum(line["file_size_bytes"] == 2 for line in events) == 3)
        it.run("rm challenge/briefing.md")
        await it.seen(lambda events: of(events, b"challenge/briefing.md"))
        slot = it.slot
    agent(slot, "rm submissions/gone; echo 2 >> submissions/grown; mkdir submissions/d; echo 3 > submissions/d/new")
    async with watched(host, slot=slot) as it:
        events = await it.seen(lambda events: of(events, b"submissions/d/new"))
        again = {(line["event_type"], line["file_path"]) for line in events if line.get("source") == "rescan"}
        assert again == {
            ("DELETE", "submissions/gone"),
            ("MODIFY", "submissions/grown"),
            ("CREATE", "submissions/d"),
            ("CREATE", "submissions/d/new"),
        }
        assert ("daemon_restart", None) in await gaps(it)
        finish = await it.end()
        assert finish.reconciled == 0
        assert await it.disagreements() == []


async def test_an_end_that_a_restart_interrupted_is_reconciled_from_the_spool(host: Host):
    async with watched(host) as it:
        it.run("echo 1 > submissions/seen")
        await it.seen(lambda events: any(line["file_size_bytes"] == 2 for line in events))
        slot = it.slot
    agent(slot, "echo 1 > submissions/unseen")
    async with watched(host, slot=slot) as it:
        await it.watch.forget(ATTEMPT)  # as if this life had found the attempt ending
        finish = await it.end(crashed=True)
        assert finish.suspects == (b"submissions/unseen",)
        assert await it.disagreements() == []
        # Interrupted once more, after all was told: the list is what it was.
        assert it.diff is not None
        again = await it.watch.finish(ATTEMPT, it.slot, it.diff, crashed=True)
        assert again == Finish(0, (b"submissions/unseen",))


async def test_a_disk_is_told_to_be_high_and_full_once_each(host: Host):
    heard: list[Fullness] = []
    async with watched(host) as it:
        it.watch.on_disk = lambda attempt_id, fullness: heard.append(fullness)
        it.run("head -c 27M /dev/zero > submissions/much")
        await it.seen(lambda events: any((line["file_size_bytes"] or 0) > 1 << 20 for line in events))
        assert [fullness.full for fullness in heard] == [False]
        assert 0.8 <= heard[0].used_ratio < 1
        it.run("cat /dev/zero > submissions/all 2>/dev/null || true")
        await it.end()
        assert [fullness.full for fullness in heard] == [False, True]


def test_the_trial_of_fanotify_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = tmp_path / "trial"
    assert probe.fanotify_refusal(place) == ""
    monkeypatch.setattr(probe, "FanotifySource", lambda merged: (_ for _ in ()).throw(OSError(95, "not here")))
    assert probe.fanotify_refusal(place) == "not here"
    assert not place.exists()
    assert list(mountinfo.below(tmp_path)) == []
