"""Recorded calls against a real socket: their order, what runs beside what, and what is not waited for."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cli.clients import Agent, agent
from cli.replaying import Played, Replay
from formats.replay import Call, Content
from tests.support.agent_server import ScriptedAgentService, services
from wire.server import Server

SECOND = 10**9


@pytest.fixture
async def service() -> ScriptedAgentService:
    return ScriptedAgentService()


@pytest.fixture
async def connection(service: ScriptedAgentService) -> AsyncIterator[Agent]:
    directory = Path(tempfile.mkdtemp(prefix="gr-", dir="/tmp"))
    server = Server(f"unix://{directory}/a.sock", services(service))
    await server.start()
    async with agent(f"unix://{directory}/a.sock", "token") as connected:
        yield connected
    await server.stop(0.1)
    shutil.rmtree(directory)


def call(number: int, verb: str, began: float, ended: float, exit_code: int | None = 0, **fields: Any) -> Call:
    arguments = {"argv": [f"p{number}"]} if verb == "exec" else {"path": f"f{number}"}
    values: dict[str, Any] = {"arguments": arguments, "contents": {}, "signal": None, **fields}
    return Call(number, verb, began_ns=int(began * SECOND), ended_ns=int(ended * SECOND), exit_code=exit_code, **values)


async def play(connection: Agent, *calls: Call, blobs: dict[str, Path] | None = None) -> tuple[Played, list[str]]:
    said: list[str] = []
    replay = Replay(connection, blobs or {}, lambda what, ok, seconds, output: said.append(what))
    async with asyncio.timeout(20):
        return await replay.play(calls), said


async def test_one_after_the_other_and_then_submit(connection: Agent, service: ScriptedAgentService) -> None:
    verbs = ("exec", "mkdir", "list", "stat", "exec", "remove")
    calls = [call(number, verb, number, number + 0.1) for number, verb in enumerate(verbs)]
    played, _ = await play(connection, *calls)
    assert played == Played(6, 0, 0)
    assert service.begun() == ["p0", "f1", "f2", "f3", "p4", "f5", "submit"]


async def test_bytes_input_and_every_argument_are_those_of_the_record(
    connection: Agent, service: ScriptedAgentService, tmp_path: Path
) -> None:
    (tmp_path / "w").write_bytes(b"\xff\x00")
    (tmp_path / "a").write_text(json.dumps({"argv": ["big", "x" * 40_000], "cwd": "challenge"}))
    contents = {name: Content(name, 1, True) for name in ("w", "a")}
    await play(
        connection,
        call(1, "write_file", 1, 1.1, arguments={"path": "b", "mode": 0o600}, contents={"content": contents["w"]}),
        call(2, "write_file", 2, 2.1, arguments={"path": "empty"}),
        call(3, "exec", 3, 3.1, arguments={}, contents={"arguments": contents["a"], "stdin": contents["w"]}),
        call(4, "exec", 4, 4.1, arguments={"argv": ["e"], "environment": {"A": "b"}, "timeout_seconds": 2.5}),
        call(5, "remove", 5, 5.1, arguments={"path": "d", "recursive": True}),
        call(6, "mkdir", 6, 6.1, arguments={"path": "d", "parents": True}),
        blobs={name: tmp_path / name for name in contents},
    )
    write, empty, big, small, remove, make, _ = service.requests
    assert (write.mode, service.files) == (0o600, {"b": b"\xff\x00", "empty": b""}) and empty.size_bytes == 0
    assert (len(big.argv[1]), big.cwd, service.inputs["big"]) == (40_000, "challenge", b"\xff\x00")
    assert (dict(small.environment), small.timeout_duration.ToNanoseconds()) == ({"A": "b"}, 2_500_000_000)
    assert remove.recursive and make.parents


async def test_what_ran_beside_another_call_runs_beside_it_again(
    connection: Agent, service: ScriptedAgentService
) -> None:
    gate = service.gates["p1"] = asyncio.Event()
    calls = [call(1, "exec", 1, 5), call(2, "exec", 1.1, 1.2), call(3, "exec", 6, 6.1)]
    replay = asyncio.create_task(play(connection, *calls))
    await service.until("end", "p2")
    assert service.begun() == ["p1", "p2"]
    gate.set()
    await replay
    assert service.log.index(("end", "p1")) < service.log.index(("begin", "p3"))


@pytest.mark.parametrize("end", [{"exit_code": None}, {"exit_code": None, "signal": 15}])
async def test_what_the_end_cut_off_is_begun_and_not_waited_for(
    connection: Agent, service: ScriptedAgentService, end: dict[str, Any]
) -> None:
    service.gates["p1"] = asyncio.Event()  # never set
    played, said = await play(connection, call(1, "exec", 1, 1.3, **end), call(2, "stat", 1.1, 1.2))
    assert service.begun() == ["p1", "f2", "submit"] and played.different == 0
    assert not any("longer" in what for what in said)


async def test_other_ends_are_counted_and_a_failed_write_is_left_out(
    connection: Agent, service: ScriptedAgentService
) -> None:
    service.exits["p1"] = 3
    played, said = await play(
        connection,
        call(1, "exec", 1, 1.1),
        call(2, "write_file", 2, 2.1, exit_code=1),
        call(3, "read_file", 3, 3.1, exit_code=1),
        call(4, "read_file", 4, 4.1),
    )
    assert played == Played(3, 1, 2)
    assert "recorded: exit 0, now: exit 3" in said[0]
    assert "recorded: exit 0, now: exit 1" in said[2] and "recorded" not in said[1]


async def test_an_attempt_that_ends_ends_the_replay(connection: Agent, service: ScriptedAgentService) -> None:
    service.ended = True
    played, _ = await play(connection, call(1, "stat", 1, 1.1), call(2, "stat", 2, 2.1))
    assert played.calls == 1 and service.begun() == []
