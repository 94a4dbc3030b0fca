"""`ControlStore` on SQLite or PostgreSQL. All SQL of the room stands here."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Row, and_, delete, func, insert, or_, select, update

from formats.record import Fault, Flag, Outcome, State
from records.database import reading, writing
from scheduler.errors import AttemptUnknown, NodeUnknown, QueueFull, RequestIdReused
from scheduler.model import ACTIVE, Active, Attempt, ChallengeRow, NodeRow, Priority, QueueEntry, RequestKey
from scheduler.store.port import (
    COLUMNS,
    Change,
    Changes,
    ControlStore,
    Order,
    Planner,
    When,
    check_changes,
    check_columns,
)
from scheduler.store.schema import attempts, challenges, clock, documents, nodes, requests

_MARKS = ("started_mark", "ended_mark", "judging_until", "judging_ready_mark")


class SqlStore(ControlStore):
    """The adapter. `engine` is set up by `store.engine.open_engine`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def adopt_clock(self, boot_id: str, steady: float) -> None:
        """Rebase."""
        with writing(self._engine) as db:
            known = db.scalar(select(clock.c.boot_id))
            if known == boot_id:
                return
            if known is None:
                db.execute(insert(clock).values(boot_id=boot_id))
                return
            db.execute(update(attempts).values(queued_mark=steady))
            for mark in _MARKS:
                column = attempts.c[mark]
                db.execute(update(attempts).where(column.is_not(None)).values({mark: steady}))
            db.execute(update(clock).values(boot_id=boot_id))

    def insert_attempt(self, request: RequestKey, attempt: Attempt, max_depth: int) -> tuple[Attempt, bool]:
        """Queue."""
        with writing(self._engine) as db:
            known = _known(db, request)
            if known is not None:
                return _attempt(db, known), False
            depth = db.scalar(select(func.count()).where(attempts.c.state == State.QUEUED.value))
            if (depth or 0) >= max_depth:
                raise QueueFull(max_depth)
            values = {name: _encode(name, getattr(attempt, name)) for name in COLUMNS - {"seq"}}
            kept = db.execute(insert(attempts).values(values).returning(*attempts.c)).one()
            _remember(db, request, attempt.attempt_id)
            return _decode(kept), True

    def attempt(self, attempt_id: str) -> Attempt | None:
        """One."""
        with reading(self._engine) as db:
            row = db.execute(select(attempts).where(attempts.c.attempt_id == attempt_id)).one_or_none()
            return _decode(row) if row is not None else None

    def find(self, when: When, *, order: Order = "oldest", limit: int | None = None) -> list[Attempt]:
        """Filter."""
        check_columns(when)
        query = select(attempts).where(_clause(when))
        if order == "queue":
            query = query.order_by(attempts.c.priority)
        with reading(self._engine) as db:
            return [_decode(row) for row in db.execute(query.order_by(attempts.c.seq).limit(limit))]

    def page(
        self,
        *,
        limit: int,
        before_seq: int | None = None,
        states: Collection[State] = (),
        agent_id: str | None = None,
        challenge_id: str | None = None,
    ) -> list[Attempt]:
        """Newest first."""
        query = select(attempts).order_by(attempts.c.seq.desc()).limit(limit)
        if before_seq is not None:
            query = query.where(attempts.c.seq < before_seq)
        if states:
            query = query.where(or_(*(_public_state(state) for state in states)))
        if agent_id is not None:
            query = query.where(attempts.c.agent_id == agent_id)
        if challenge_id is not None:
            query = query.where(attempts.c.challenge_id == challenge_id)
        with reading(self._engine) as db:
            return [_decode(row) for row in db.execute(query)]

    def change(
        self,
        attempt_id: str,
        when: When,
        changes: Changes,
        request: RequestKey | None = None,
        *,
        told_again: bool = False,
    ) -> Change:
        """Compare and set."""
        check_columns(when)
        check_changes(changes)
        with writing(self._engine, awaits_disk=not told_again) as db:
            known = _known(db, request) is not None if request is not None else False
            row = None
            if not known:
                where = and_(attempts.c.attempt_id == attempt_id, _clause(when))
                values = {name: _encode(name, value) for name, value in changes.items()}
                if values:
                    row = db.execute(update(attempts).where(where).values(values).returning(*attempts.c)).one_or_none()
                else:
                    row = db.execute(select(attempts).where(where)).one_or_none()
            if request is not None and row is not None:
                _remember(db, request, attempt_id)
            return Change(_decode(row) if row is not None else _attempt(db, attempt_id), row is not None, known)

    def assign(self, planner: Planner) -> list[Attempt]:
        """Place."""
        queued = (
            select(attempts.c.attempt_id, attempts.c.agent_id, attempts.c.challenge_id)
            .where(attempts.c.state == State.QUEUED.value)
            .order_by(attempts.c.priority, attempts.c.seq)
            .with_for_update()
        )
        taken = select(attempts.c.agent_id, attempts.c.challenge_id, attempts.c.node_id).where(
            attempts.c.state.in_([state.value for state in ACTIVE])
        )
        with writing(self._engine) as db:
            entries = [QueueEntry(*row) for row in db.execute(queued)]
            if not entries:
                return []
            active = Active()
            for agent_id, challenge_id, node_id in db.execute(taken):
                active.add(agent_id, challenge_id, node_id)
            placed = []
            for choice in planner(entries, active):
                where = and_(attempts.c.attempt_id == choice.attempt_id, attempts.c.state == State.QUEUED.value)
                placing = update(attempts).where(where)
                placing = placing.values(state=State.STARTING.value, node_id=choice.node_id, fence=attempts.c.fence + 1)
                row = db.execute(placing.returning(*attempts.c)).one_or_none()
                if row is None:
                    raise ValueError(f"{choice.attempt_id} is not queued")
                placed.append(_decode(row))
            return placed

    def put_node(self, node: NodeRow) -> NodeRow:
        """Upsert."""
        values = {
            "endpoint": node.endpoint,
            "agent_endpoint": node.agent_endpoint,
            "capacity": node.capacity,
            "boot_id": node.boot_id,
        }
        with writing(self._engine) as db:
            if db.execute(update(nodes).where(nodes.c.node_id == node.node_id).values(values)).rowcount == 0:
                db.execute(insert(nodes).values(node_id=node.node_id, draining=False, **values))
            return _node(db, node.node_id)

    def nodes(self) -> list[NodeRow]:
        """All."""
        with reading(self._engine) as db:
            return [NodeRow(**row._mapping) for row in db.execute(select(nodes).order_by(nodes.c.node_id))]

    def set_draining(self, request: RequestKey, node_id: str, draining: bool) -> NodeRow:
        """Drain."""
        with writing(self._engine) as db:
            known = _known(db, request)
            node = _node(db, node_id)
            if known is not None:
                return node
            db.execute(update(nodes).where(nodes.c.node_id == node_id).values(draining=draining))
            _remember(db, request, node_id)
            return _node(db, node_id)

    def put_challenge(self, challenge: ChallengeRow) -> None:
        """Keep."""
        with writing(self._engine) as db:
            if db.scalar(select(challenges.c.digest).where(challenges.c.digest == challenge.digest)) is None:
                db.execute(insert(challenges).values(**vars(challenge)))

    def challenge(self, digest: str) -> ChallengeRow | None:
        """One."""
        with reading(self._engine) as db:
            row = db.execute(select(challenges).where(challenges.c.digest == digest)).one_or_none()
            return ChallengeRow(**row._mapping) if row is not None else None

    def put_documents(self, attempt_id: str, contents: Mapping[tuple[str, str], bytes]) -> None:
        """Keep."""
        with writing(self._engine) as db:
            db.execute(delete(documents).where(documents.c.attempt_id == attempt_id))
            for (judge, name), content in contents.items():
                db.execute(insert(documents).values(attempt_id=attempt_id, judge=judge, name=name, content=content))

    def documents(self, attempt_id: str) -> dict[tuple[str, str], bytes]:
        """All."""
        query = select(documents.c.judge, documents.c.name, documents.c.content)
        with reading(self._engine) as db:
            rows = db.execute(query.where(documents.c.attempt_id == attempt_id))
            return {(judge, name): content for judge, name, content in rows}


def _known(db: Connection, request: RequestKey) -> str | None:
    """The resource of a request seen before. Raises RequestIdReused."""
    where = and_(requests.c.principal == request.principal, requests.c.request_id == request.request_id)
    row = db.execute(select(requests.c.fingerprint, requests.c.resource).where(where)).one_or_none()
    if row is None:
        return None
    if row.fingerprint != request.fingerprint:
        raise RequestIdReused(request.request_id)
    return str(row.resource)


def _remember(db: Connection, request: RequestKey, resource: str) -> None:
    db.execute(insert(requests).values(resource=resource, **vars(request)))


def _attempt(db: Connection, attempt_id: str) -> Attempt:
    row = db.execute(select(attempts).where(attempts.c.attempt_id == attempt_id)).one_or_none()
    if row is None:
        raise AttemptUnknown(attempt_id)
    return _decode(row)


def _node(db: Connection, node_id: str) -> NodeRow:
    row = db.execute(select(nodes).where(nodes.c.node_id == node_id)).one_or_none()
    if row is None:
        raise NodeUnknown(node_id)
    return NodeRow(**row._mapping)


def _clause(when: When) -> ColumnElement[bool]:
    clauses: list[ColumnElement[bool]] = []
    for name, wanted in when.items():
        column = attempts.c[name]
        if isinstance(wanted, frozenset):
            clauses.append(column.in_([_encode(name, value) for value in wanted]))
        elif wanted is None:
            clauses.append(column.is_(None))
        else:
            clauses.append(column == _encode(name, wanted))
    return and_(True, *clauses)


def _public_state(state: State) -> ColumnElement[bool]:
    """`Attempt.public_state`, said in SQL."""
    same = attempts.c.state == state.value
    closing = and_(attempts.c.state.in_([State.SCORED.value, State.VOIDED.value]), attempts.c.recorded.is_(False))
    if state is State.JUDGING:
        return or_(same, closing)
    return and_(same, attempts.c.recorded.is_(True)) if state in (State.SCORED, State.VOIDED) else same


def _encode(name: str, value: Any) -> Any:
    if name == "flags":
        return json.dumps([flag.value for flag in value])
    if name == "priority":
        return int(value)
    return value.value if isinstance(value, State | Outcome | Fault) else value


def _decode(row: Row[Any]) -> Attempt:
    values = dict(row._mapping)
    values["priority"] = Priority(values["priority"])
    values["state"] = State(values["state"])
    values["outcome"] = Outcome(values["outcome"]) if values["outcome"] is not None else None
    values["fault"] = Fault(values["fault"]) if values["fault"] is not None else None
    values["flags"] = tuple(Flag(flag) for flag in json.loads(values["flags"]))
    return Attempt(**values)
