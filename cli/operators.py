"""`gauntlet queue|node|pool|audit`: the operator's view."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from gauntlet.audit.v1 import audit_service_pb2 as audit_pb
from gauntlet.scheduler.v1 import scheduler_service_pb2 as pb
from rich.text import Text

from cli import views
from cli.clients import Services, services
from cli.options import Endpoint, Json, endpoint_of
from cli.running import Exit, answers, print_json, run
from wire import client, request_ids

node = typer.Typer(no_args_is_help=True, help="Nodes.")
pool = typer.Typer(no_args_is_help=True, help="Warm pools.")
audit = typer.Typer(no_args_is_help=True, help="The audit ledger.")

NODE_COLUMNS = ["node_id", "running", "capacity", "draining", "stale", "endpoint"]
POOL_COLUMNS = ["node_id", "stack", "target", "ready", "creating", "allocated", "breaker_open", "last_error"]
QUEUE_COLUMNS = ["attempt_id", "challenge_id", "agent_id", "priority", "state"]


def queue(as_json: Json = False, endpoint: Endpoint = None) -> None:
    """Print what waits, in the order in which it will be placed."""

    async def work() -> None:
        async with services(endpoint_of(endpoint)) as to:
            answer = await client.call(to.scheduler.GetQueue, pb.GetQueueRequest())
        rows = [views.entry(attempt) for attempt in answer.attempts]
        title = f"Queue ({len(rows)} of {answer.max_depth})"
        print_json(rows) if as_json else answers.print(views.table(title, rows, QUEUE_COLUMNS))

    run(work, endpoint_of(endpoint))


@node.command("list")
def list_nodes(as_json: Json = False, endpoint: Endpoint = None) -> None:
    """List nodes."""

    async def work() -> None:
        async with services(endpoint_of(endpoint)) as to:
            rows = [_node_row(each) for each in await _nodes(to)]
        print_json(rows) if as_json else answers.print(views.table("Nodes", rows, NODE_COLUMNS))

    run(work, endpoint_of(endpoint))


@node.command()
def drain(node_id: str, as_json: Json = False, endpoint: Endpoint = None) -> None:
    """Place no new attempts on a node."""
    _drain(node_id, True, as_json, endpoint_of(endpoint))


@node.command()
def undrain(node_id: str, as_json: Json = False, endpoint: Endpoint = None) -> None:
    """Place attempts on a node again."""
    _drain(node_id, False, as_json, endpoint_of(endpoint))


@pool.command()
def status(as_json: Json = False, endpoint: Endpoint = None) -> None:
    """Print every warm pool."""

    async def work() -> None:
        async with services(endpoint_of(endpoint)) as to:
            rows = [
                {"node_id": each.node_id, **{name: getattr(one, name) for name in POOL_COLUMNS[1:]}}
                for each in await _nodes(to)
                for one in each.pools
            ]
        print_json(rows) if as_json else answers.print(views.table("Pools", rows, POOL_COLUMNS))

    run(work, endpoint_of(endpoint))


@audit.command("get")
def get_record(
    attempt_id: str,
    revision: Annotated[int, typer.Option("--revision", help="From 1; the latest by default.")] = 0,
    as_json: Json = False,
    endpoint: Endpoint = None,
) -> None:
    """Print an attempt's audit record exactly as the ledger keeps it."""

    async def work() -> None:
        request = audit_pb.GetRecordRequest(attempt_id=attempt_id, revision=revision)
        async with services(endpoint_of(endpoint)) as to:
            answer = await client.call(to.audit.GetRecord, request)
        value = json.loads(answer.record_json)
        if as_json:
            print_json(value)
        else:
            answers.print(views.record_table(value))
            answers.print(f"entry {answer.sequence}, revision {answer.revision}, {answer.entry_hash}", soft_wrap=True)

    run(work, endpoint_of(endpoint))


@audit.command()
def verify(as_json: Json = False, endpoint: Endpoint = None) -> None:
    """Recompute every hash of the ledger; leaves with 1 when one does not hold."""

    async def work() -> Exit:
        async with services(endpoint_of(endpoint)) as to:
            request = audit_pb.VerifyLedgerRequest()
            answer = await client.call(to.audit.VerifyLedger, request, timeout=600.0)
        problems = list(answer.problems)
        if as_json:
            print_json({"entries": answer.entries, "head_hash": answer.head_hash, "problems": problems})
        else:
            answers.print(f"{answer.entries} entries, head {answer.head_hash or '–'}", soft_wrap=True)
            for problem in problems:
                answers.print(Text(problem, "red"))
        return Exit.FAILED if problems else Exit.DONE

    run(work, endpoint_of(endpoint))


async def _nodes(to: Services) -> list[pb.Node]:
    return list((await client.call(to.scheduler.ListNodes, pb.ListNodesRequest())).nodes)


def _node_row(each: pb.Node) -> dict[str, Any]:
    return {name: getattr(each, name) for name in NODE_COLUMNS}


def _drain(node_id: str, wanted: bool, as_json: bool, endpoint: str) -> None:
    async def work() -> None:
        request = pb.DrainNodeRequest(request_id=request_ids.new(), node_id=node_id, drain=wanted)
        async with services(endpoint) as to:
            answer = await client.call(to.scheduler.DrainNode, request)
        row = _node_row(answer.node)
        print_json(row) if as_json else answers.print(views.table("Node", [row], NODE_COLUMNS))

    run(work, endpoint)
