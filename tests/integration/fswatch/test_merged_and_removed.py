"""Storms that the kernel merges, and directories that were gone before anybody asked where they had been."""

from __future__ import annotations

from daemon.fswatch.changes import NAMES, Change
from daemon.fswatch.content import Workspace
from daemon.fswatch.fanotify import FanotifySource
from daemon.fswatch.origins import Origins, Templates, origins_of
from tests.support.possible_story import impossible
from tests.support.watched import brief, of, watched
from tests.support.workspaces import Host, agent, agent_python

TEMPLATE = ("challenge/docs", "challenge/tests", "challenge/src")
STORM = """
import os
os.chdir('submissions'); os.mkdir('A'); open('A/f', 'w').write('1')
for n in range(3000):
    os.rename('A', 'B'); os.rename('B/f', 'B/g'); os.rename('B', 'A'); os.rename('A/g', 'A/f')
"""
COME_AND_GO = """
import os, shutil
os.chdir('submissions')
for n in range(50):
    os.makedirs('x/y/z'); open('x/y/z/f', 'w').write('1'); open('x/g', 'w').write('2'); os.symlink('g', 'x/l')
    os.rename('x/l', 'x/m'); os.rename('x/m', 'x/l')
    shutil.rmtree('x')
"""


async def test_removing_template_directories_first_is_told_file_by_file(host: Host):
    async with watched(host) as it:
        files = {
            str(path.relative_to(it.slot.merged))
            for top in TEMPLATE
            for path in (it.slot.merged / top).rglob("*")
            if path.is_file()
        }
        assert len(files) >= 3
        it.run("rm -rf " + " ".join(TEMPLATE))
        finish = await it.end()
        assert [line for line in await it.lines() if "gap" in line] == []
        assert finish.reconciled == 0
        assert await it.disagreements() == []
        told = brief(await it.events())
        for name in files:
            assert told.index(("DELETE", name)) < told.index(("DELETE", name.rpartition("/")[0]))


async def test_a_template_is_walked_once(host: Host):
    walked: list[Workspace] = []

    def walk(workspace: Workspace) -> Origins:
        walked.append(workspace)
        return origins_of(workspace)

    templates = Templates(walk)
    slots = [await host.assigned() for _ in range(2)]
    for slot in slots:
        assert slot.template_digest is not None
        source = FanotifySource(slot.merged, lambda root, slot=slot: templates.of(slot.template_digest, root))
        try:
            agent(slot, "rm -rf challenge/docs")
            batch = source.read()
            assert batch is not None and batch.lost == 0
            assert {change.path for change in batch.changes} > {b"challenge/docs"}
        finally:
            source.close()
    assert len(walked) == 1


async def read_at_once(host: Host, program: str) -> tuple[list[Change], list[str]]:
    """What a reader is told who comes when all is over, and what of it cannot have been."""
    slot = await host.assigned()
    before = {bytes(path.relative_to(slot.merged)): path.is_dir() for path in slot.merged.rglob("*")}
    source = FanotifySource(slot.merged)
    changes: list[Change] = []
    try:
        agent_python(slot, program)
        while (batch := source.read()) is not None:
            changes += batch.changes
            assert batch.lost == 0
    finally:
        source.close()
    return changes, impossible(((NAMES[one.operation], one.path, one.is_directory) for one in changes), before)


async def test_a_storm_read_late_is_a_possible_story_that_says_what_was_merged(host: Host):
    changes, problems = await read_at_once(host, STORM)
    assert problems == []
    told = [(NAMES[change.operation], change.path) for change in changes]
    assert told.index(("CREATE", b"submissions/A/f")) < told.index(("MOVED_FROM", b"submissions/A"))
    assert len(changes) < 24_000
    assert any(change.merged for change in changes)


async def test_trees_that_came_and_went_go_from_the_leaves(host: Host):
    changes, problems = await read_at_once(host, COME_AND_GO)
    assert problems == []
    removed = [change.path for change in changes if NAMES[change.operation] == "DELETE"]
    assert removed.count(b"submissions/x/y/z/f") == 50


async def test_a_storm_of_renames_is_marked_in_the_spool(host: Host):
    async with watched(host) as it:
        it.python(STORM)
        await it.end()
        assert await it.disagreements() == []
        events = await it.events()
        assert [line for line in await it.lines() if "gap" in line] == []
        moved = [line for line in events if line["event_type"] in ("MOVED_FROM", "MOVED_TO")]
        assert len(moved) >= 24_000 or any(line.get("merged") for line in moved)
        assert of(events, b"submissions/A/f")[0]["event_type"] == "CREATE"
