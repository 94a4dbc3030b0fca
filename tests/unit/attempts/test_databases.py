"""A challenge's database: what a claim may ask for, and how often its start is tried."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from gauntlet.daemon.v1 import daemon_service_pb2 as pb

from daemon.attempts import databases
from daemon.attempts.model import DatabaseSpec
from daemon.services import mapping
from daemon.supervisor.errors import SupervisorGone, TooManyExecs
from daemon.supervisor.types import ExecResult, Exited, Output
from formats.challenge import ChallengeSpec
from scheduler.claim import claim_request
from tests.support.scheduling import new_attempt
from wire.errors import WireError

SHOP = DatabaseSpec("postgres", "shop", 10.0)
DESCRIPTION = {"id": "c", "title": "C", "stack": "python311", "time_limit_seconds": 9}


class Link:
    """Answers each start with the next of `ends`: an exit code, a timeout, or what is raised."""

    def __init__(self, *ends: int | Exception | None) -> None:
        self.ends = list(ends)
        self.ids: list[str] = []

    async def exec(self, spec: Any, *, exec_id: str) -> Link:
        self.ids.append(exec_id)
        if isinstance(self.ends[0], Exception):
            raise self.ends.pop(0)  # type: ignore[misc]
        return self

    async def events(self) -> Any:
        end = self.ends.pop(0)
        yield Output("stderr", 0, b"it said why")
        yield Exited(ExecResult(end, None if end is not None else 9, end is None, 1, 0, 0, 0, 0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ends", "tries", "reason"),
    [
        ((0,), 1, ""),
        ((1, 0), 2, ""),
        ((None, 0), 2, ""),
        ((1, 1, 0), 2, "exit 1: it said why"),
        ((1, None, 0), 2, "it did not serve within 10 s"),
        ((TooManyExecs("32 commands are live"), 0), 2, ""),
    ],
)
async def test_a_start_is_tried_once_more(ends: tuple[Any, ...], tries: int, reason: str) -> None:
    link = Link(*ends)
    assert await databases.start(link, SHOP, backoff_seconds=0.0) == reason  # type: ignore[arg-type]
    assert len(link.ids) == len(set(link.ids)) == tries


async def test_a_sandbox_that_is_gone_is_no_missing_database() -> None:
    with pytest.raises(SupervisorGone):
        await databases.start(Link(SupervisorGone("gone")), SHOP, backoff_seconds=0.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", sorted(databases.PORTS))
def test_every_kind_has_a_script_that_a_shell_reads_and_variables(kind: str) -> None:
    database = DatabaseSpec(kind, "a-b_c", 0.4)
    checked = subprocess.run(["sh", "-n"], input=databases.start_script(database), text=True, check=False)
    assert checked.returncode == 0
    assert databases.variables(database)


def test_a_challenge_asks_a_node_for_its_database() -> None:
    wanted = {"kind": "postgres", "name": "shop", "start_timeout_seconds": 20}
    request = claim_request(
        new_attempt("att_1", fence=1), ChallengeSpec.model_validate({**DESCRIPTION, "database": wanted})
    )
    assert mapping.claim_spec(request).database == DatabaseSpec("postgres", "shop", 20.0)
    without = claim_request(new_attempt("att_1", fence=1), ChallengeSpec.model_validate(DESCRIPTION))
    assert mapping.claim_spec(without).database is None


@pytest.mark.parametrize(
    ("kind", "name", "seconds", "field"),
    [
        ("oracle", "shop", 10, "database.kind"),
        ("postgres", "shop'; rm -rf /", 10, "database.name"),
        ("postgres", "", 10, "database.name"),
        ("postgres", "shop", 0, "database.start_timeout_duration"),
        ("postgres", "shop", 121, "database.start_timeout_duration"),
    ],
)
def test_a_claim_whose_database_cannot_be_is_refused(kind: str, name: str, seconds: int, field: str) -> None:
    request = claim_request(new_attempt("att_1", fence=1), ChallengeSpec.model_validate(DESCRIPTION))
    request.database.CopyFrom(pb.Database(kind=kind, name=name))
    request.database.start_timeout_duration.FromSeconds(seconds)
    with pytest.raises(WireError) as caught:
        mapping.claim_spec(request)
    assert caught.value.reason == "CLAIM_INVALID"
    assert field in str(caught.value.fields if hasattr(caught.value, "fields") else caught.value.__dict__)
