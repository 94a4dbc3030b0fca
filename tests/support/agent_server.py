"""An AgentService for tests of its clients: notes each call when it begins and when it ends, behaves as scripted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from gauntlet.daemon.v1 import agent_service_pb2 as pb
from gauntlet.daemon.v1 import agent_service_pb2_grpc as pb_grpc

from wire import errors


class ScriptedAgentService(pb_grpc.AgentServiceServicer):
    """`log` holds `("begin" | "end", what)` in order; `gates` maps a program to the event its end waits for."""

    def __init__(self) -> None:
        self.noted = asyncio.Event()
        self.log: list[tuple[str, str]] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.exits: dict[str, int] = {}
        self.inputs: dict[str, bytes] = {}
        self.requests: list[Any] = []
        self.files: dict[str, bytes] = {}
        self.ended = False

    async def Exec(self, request: pb.ExecRequest, context: Any) -> AsyncIterator[pb.ExecResponse]:
        self._begin(request, request.argv[0])
        yield pb.ExecResponse(started=pb.ExecStarted(exec_id="exe_1"))
        self.inputs[request.argv[0]] = request.stdin
        if request.argv[0] in self.gates:
            await self.gates[request.argv[0]].wait()
        self._note("end", request.argv[0])
        yield pb.ExecResponse(exited=pb.ExecExited(exit_code=self.exits.get(request.argv[0], 0)))

    async def WriteFile(self, request_iterator: AsyncIterator[pb.WriteFileRequest], context: Any) -> Any:
        head = await anext(request_iterator)
        self._begin(head, head.path)
        self.files[head.path] = b"".join([part.chunk async for part in request_iterator])
        self._note("end", head.path)
        return pb.WriteFileResponse()

    async def ReadFile(self, request: pb.ReadFileRequest, context: Any) -> AsyncIterator[pb.ReadFileResponse]:
        self._begin(request, request.path)
        if request.path not in self.files:
            raise errors.not_found("file", request.path)
        yield pb.ReadFileResponse(chunk=self.files[request.path])

    async def ListDirectory(self, request: pb.ListDirectoryRequest, context: Any) -> pb.ListDirectoryResponse:
        self._begin(request, request.path)
        return pb.ListDirectoryResponse()

    async def StatFile(self, request: pb.StatFileRequest, context: Any) -> pb.StatFileResponse:
        self._begin(request, request.path)
        return pb.StatFileResponse()

    async def MakeDirectory(self, request: pb.MakeDirectoryRequest, context: Any) -> pb.MakeDirectoryResponse:
        self._begin(request, request.path)
        return pb.MakeDirectoryResponse()

    async def RemoveFile(self, request: pb.RemoveFileRequest, context: Any) -> pb.RemoveFileResponse:
        self._begin(request, request.path)
        return pb.RemoveFileResponse()

    async def Submit(self, request: pb.SubmitRequest, context: Any) -> pb.SubmitResponse:
        self._begin(request, "submit")
        return pb.SubmitResponse()

    async def until(self, step: str, what: str, timeout: float = 10.0) -> None:
        """Wait until that step is in the log."""
        async with asyncio.timeout(timeout):
            while (step, what) not in self.log:
                self.noted.clear()
                await self.noted.wait()

    def begun(self) -> list[str]:
        """What began, in order."""
        return [what for step, what in self.log if step == "begin"]

    def _begin(self, request: Any, what: str) -> None:
        if self.ended:
            raise errors.precondition("ATTEMPT_ENDED", "the attempt has ended")
        self.requests.append(request)
        self._note("begin", what)

    def _note(self, step: str, what: str) -> None:
        self.log.append((step, what))
        self.noted.set()


def services(service: ScriptedAgentService) -> Mapping[str, Any]:
    """What `wire.server.Server` serves."""
    return {"gauntlet.daemon.v1.AgentService": (pb_grpc.add_AgentServiceServicer_to_server, service)}
