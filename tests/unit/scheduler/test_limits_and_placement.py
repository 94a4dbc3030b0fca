"""Limits and placement, as pure functions."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from scheduler.limits import Limits, blocked_by
from scheduler.model import Active, Placement, QueueEntry
from scheduler.placement import Candidate, plan


def entry(name: str, agent: str | None = None, challenge: str = "c") -> QueueEntry:
    return QueueEntry(name, agent or f"agent-{name}", challenge)


def taken(*places: tuple[str, str, str]) -> Active:
    active = Active()
    for agent, challenge, node in places:
        active.add(agent, challenge, node)
    return active


def test_the_defaults_are_the_specifications() -> None:
    limits = Limits()
    assert (limits.global_max, limits.per_agent_max, limits.per_challenge_max) == (200, 1, 50)
    assert (limits.max_queue_depth, limits.queue_timeout_seconds) == (500, 300)


@pytest.mark.parametrize("bad", [{"global_max": 0}, {"per_agent_max": -1}, {"queue_timeout_seconds": float("inf")}])
def test_limits_that_make_no_sense_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Limits.model_validate(bad)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits(), "AGENT_BUSY"),
        (Limits(per_agent_max=2), None),
        (Limits(per_agent_max=2, per_challenge_max=1), "CHALLENGE_BUSY"),
        (Limits(per_agent_max=2, global_max=1), "GLOBAL_MAX"),
    ],
)
def test_which_limit_blocks(limits: Limits, expected: str | None) -> None:
    assert blocked_by(limits, taken(("a", "c", "n")), "a", "c") == expected


def test_another_agent_on_another_challenge_is_not_blocked() -> None:
    assert blocked_by(Limits(per_challenge_max=1), taken(("a", "c", "n")), "b", "d") is None


def test_nodes_take_turns() -> None:
    nodes = [Candidate(name, 9) for name in ("n3", "n1", "n2")]
    placed = plan([entry(str(n)) for n in range(5)], Active(), nodes, Limits())
    assert [p.node_id for p in placed] == ["n1", "n2", "n3", "n1", "n2"]
    assert plan([entry("x")], Active(), nodes, Limits(), "n2") == [Placement("x", "n3")]
    assert plan([entry("x")], Active(), nodes, Limits(), "n3") == [Placement("x", "n1")]


def test_the_turn_goes_on_behind_a_node_that_left() -> None:
    assert plan([entry("x")], Active(), [Candidate("n1", 1), Candidate("n3", 1)], Limits(), "n2") == [
        Placement("x", "n3")
    ]


def test_a_full_node_is_passed_over_and_a_full_platform_waits() -> None:
    nodes = [Candidate("n1", 1), Candidate("n2", 2)]
    queue = [entry(str(n)) for n in range(5)]
    placed = plan(queue, taken(("z", "c", "n1")), nodes, Limits())
    assert [(p.attempt_id, p.node_id) for p in placed] == [("0", "n2"), ("1", "n2")]


def test_a_blocked_attempt_does_not_hold_up_those_behind_it() -> None:
    queue = [entry("1", agent="a"), entry("2", agent="a"), entry("3", agent="b")]
    placed = plan(queue, Active(), [Candidate("n", 9)], Limits())
    assert [p.attempt_id for p in placed] == ["1", "3"]


def test_nothing_without_nodes() -> None:
    assert plan([entry("1")], Active(), [], Limits()) == []
    assert plan([entry("1")], Active(), [Candidate("n", 0)], Limits()) == []


@given(
    queue=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy")), max_size=20),
    before=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.sampled_from("mn")), max_size=5),
    capacities=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    limits=st.builds(
        Limits, global_max=st.integers(1, 8), per_agent_max=st.integers(1, 3), per_challenge_max=st.integers(1, 4)
    ),
)
def test_no_plan_breaks_a_limit_or_a_capacity(
    queue: list[tuple[str, str]], before: list[tuple[str, str, str]], capacities: list[int], limits: Limits
) -> None:
    nodes = [Candidate("mnopq"[n], capacity) for n, capacity in enumerate(capacities)]
    entries = [QueueEntry(str(n), agent, challenge) for n, (agent, challenge) in enumerate(queue)]
    placed = plan(entries, taken(*before), nodes, limits)
    chosen = [entries[int(p.attempt_id)] for p in placed]
    assert len({p.attempt_id for p in placed}) == len(placed)
    if placed:
        assert len(before) + len(placed) <= limits.global_max
    for name, limit, was, now in (
        ("agent", limits.per_agent_max, [b[0] for b in before], [e.agent_id for e in chosen]),
        ("challenge", limits.per_challenge_max, [b[1] for b in before], [e.challenge_id for e in chosen]),
    ):
        for key, count in Counter(now).items():
            assert was.count(key) + count <= limit, name
    for node in nodes:
        used = sum(p.node_id == node.node_id for p in placed)
        assert used == 0 or used + [b[2] for b in before].count(node.node_id) <= node.capacity
