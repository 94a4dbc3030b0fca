"""What every ControlStore promises: the in-memory one, SQLite, PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from formats.record import Fault, Flag, Outcome, State
from scheduler.errors import AttemptUnknown, NodeUnknown, QueueFull, RequestIdReused
from scheduler.model import Active, ChallengeRow, NodeRow, Placement, Priority, QueueEntry
from scheduler.store.engine import open_engine
from scheduler.store.memory import MemoryStore
from scheduler.store.port import ControlStore
from scheduler.store.sql import SqlStore
from tests.support.postgres import Cluster
from tests.support.scheduling import new_attempt, request_key

FAR = 1_000


def place(*wanted: tuple[str, str]) -> object:
    """A planner that makes just these placements."""

    def planner(queue: Sequence[QueueEntry], active: Active) -> list[Placement]:
        return [Placement(attempt_id, node_id) for attempt_id, node_id in wanted]

    return planner


class ControlStoreContract:
    """One abstract suite; each adapter is a subclass that gives `store`."""

    @pytest.fixture
    def store(self) -> Iterator[ControlStore]:
        raise NotImplementedError

    def fill(self, store: ControlStore, *names: str, **changes: object) -> None:
        for name in names:
            store.insert_attempt(request_key(name), new_attempt(name, **changes), FAR)

    # ---- entering -------------------------------------------------------------------------------------------

    def test_an_attempt_comes_back_as_it_went_in(self, store: ControlStore) -> None:
        network = {"network_json": '{"digest":"sha256:2"}', "network_digest": "sha256:2"}
        attempt = new_attempt("att_1", supersedes="att_0", priority=Priority.BOUT, queued_mark=12.5, **network)
        kept, made = store.insert_attempt(request_key(), attempt, FAR)
        assert made and kept.seq > 0
        assert store.attempt("att_1") == kept
        assert (kept.supersedes, kept.priority, kept.queued_mark, kept.flags) == ("att_0", Priority.BOUT, 12.5, ())
        assert (kept.network_json, kept.network_digest) == ('{"digest":"sha256:2"}', "sha256:2")
        assert store.attempt("att_2") is None

    def test_the_same_request_three_times_is_one_attempt(self, store: ControlStore) -> None:
        key = request_key("same")
        first, made = store.insert_attempt(key, new_attempt("att_1"), FAR)
        again = [store.insert_attempt(key, new_attempt(f"att_{n}"), FAR) for n in (2, 3)]
        assert made and again == [(first, False), (first, False)]
        assert [a.attempt_id for a in store.find({})] == ["att_1"]

    def test_another_body_is_refused_and_changes_nothing(self, store: ControlStore) -> None:
        key = request_key("one body")
        store.insert_attempt(key, new_attempt("att_1"), FAR)
        with pytest.raises(RequestIdReused):
            store.insert_attempt(request_key("another", key.request_id), new_attempt("att_2"), FAR)
        assert store.attempt("att_2") is None

    def test_request_ids_belong_to_a_principal(self, store: ControlStore) -> None:
        key = request_key("body")
        store.insert_attempt(key, new_attempt("att_1"), FAR)
        other = request_key("other body", key.request_id, principal="someone-else")
        assert store.insert_attempt(other, new_attempt("att_2"), FAR)[1]

    def test_a_full_queue_refuses_but_still_answers_known_requests(self, store: ControlStore) -> None:
        key = request_key()
        store.insert_attempt(key, new_attempt("att_1"), 1)
        with pytest.raises(QueueFull):
            store.insert_attempt(request_key("b"), new_attempt("att_2"), 1)
        assert store.insert_attempt(key, new_attempt("att_3"), 1)[0].attempt_id == "att_1"
        store.change("att_1", {}, {"state": State.RUNNING})
        assert store.insert_attempt(request_key("b"), new_attempt("att_2"), 1)[1]

    # ---- changing -------------------------------------------------------------------------------------------

    def test_a_change_applies_only_while_its_guard_holds(self, store: ControlStore) -> None:
        self.fill(store, "att_1")
        when = {"state": frozenset({State.QUEUED, State.STARTING}), "fence": 0, "node_id": None}
        assert store.change("att_1", when, {"state": State.RUNNING, "node_id": "n"}).applied
        late = store.change("att_1", when, {"state": State.FAILED})
        assert not late.applied and late.attempt.state is State.RUNNING

    def test_every_kind_of_value_is_kept(self, store: ControlStore) -> None:
        self.fill(store, "att_1")
        changes = {
            "state": State.SCORED,
            "outcome": Outcome.TIMED_OUT,
            "fault": Fault.AGENT,
            "flags": (Flag.DISK_FULL, Flag.ESCAPE_ATTEMPT),
            "report": b"\x00\xff",
            "results": b"[]",
            "ended_mark": 1.25,
            "deadline_ns": 2**60,
            "recorded": True,
        }
        attempt = store.change("att_1", {}, changes).attempt
        assert {name: getattr(attempt, name) for name in changes} == changes
        assert store.attempt("att_1") == attempt

    def test_a_known_request_changes_nothing_again(self, store: ControlStore) -> None:
        self.fill(store, "att_1")
        key = request_key("cancel")
        assert store.change("att_1", {}, {"cancel_reason": "a"}, key).applied
        again = store.change("att_1", {}, {"cancel_reason": "b"}, key)
        assert (again.applied, again.repeated, again.attempt.cancel_reason) == (False, True, "a")
        with pytest.raises(RequestIdReused):
            store.change("att_1", {}, {}, request_key("another", key.request_id))

    def test_a_request_whose_guard_did_not_hold_is_not_spent(self, store: ControlStore) -> None:
        self.fill(store, "att_1")
        key = request_key("cancel")
        assert not store.change("att_1", {"state": State.RUNNING}, {"reason": "a"}, key).applied
        assert store.change("att_1", {"state": State.QUEUED}, {"reason": "b"}, key).applied

    def test_a_change_of_nothing_spends_its_request(self, store: ControlStore) -> None:
        self.fill(store, "att_1")
        key = request_key("cancel")
        assert store.change("att_1", {"state": State.QUEUED}, {}, key).applied
        assert not store.change("att_1", {"state": State.RUNNING}, {}).applied
        assert store.change("att_1", {"state": State.QUEUED}, {}, key).repeated

    def test_unknown_attempts_and_columns_are_errors(self, store: ControlStore) -> None:
        with pytest.raises(AttemptUnknown):
            store.change("att_9", {}, {"reason": "x"})
        self.fill(store, "att_1")
        for when, changes in (({"colour": 1}, {}), ({}, {"colour": 1}), ({}, {"seq": 7}), ({}, {"attempt_id": "x"})):
            with pytest.raises(KeyError):
                store.change("att_1", when, changes)
        with pytest.raises(KeyError):
            store.find({"colour": 1})

    # ---- finding --------------------------------------------------------------------------------------------

    def test_the_queue_is_ordered_by_priority_then_age(self, store: ControlStore) -> None:
        for name, priority in (("r", 3), ("p1", 2), ("b1", 1), ("p2", 2), ("b2", 1)):
            self.fill(store, name, priority=Priority(priority))
        assert [a.attempt_id for a in store.find({"state": State.QUEUED}, order="queue")] == [
            "b1",
            "b2",
            "p1",
            "p2",
            "r",
        ]
        assert [a.attempt_id for a in store.find({}, limit=2)] == ["r", "p1"]

    def test_finding_by_sets_and_by_nothing(self, store: ControlStore) -> None:
        self.fill(store, "a", "b", "c")
        store.change("b", {}, {"state": State.RUNNING, "node_id": "n1"})
        assert [a.attempt_id for a in store.find({"node_id": None})] == ["a", "c"]
        assert [a.attempt_id for a in store.find({"node_id": frozenset({"n1", "n2"})})] == ["b"]
        assert store.find({"node_id": frozenset()}) == []

    def test_pages_are_newest_first_and_join_up(self, store: ControlStore) -> None:
        self.fill(store, *(f"a{n}" for n in range(5)))
        first = store.page(limit=2)
        second = store.page(limit=2, before_seq=first[-1].seq)
        assert [a.attempt_id for a in (*first, *second)] == ["a4", "a3", "a2", "a1"]
        assert [a.attempt_id for a in store.page(limit=9, agent_id="agent-of-a3")] == ["a3"]
        assert store.page(limit=9, challenge_id="other") == []

    @pytest.mark.parametrize("recorded", [False, True])
    @pytest.mark.parametrize("state", list(State))
    def test_pages_filter_by_the_public_state(self, store: ControlStore, state: State, recorded: bool) -> None:
        self.fill(store, "a")
        attempt = store.change("a", {}, {"state": state, "recorded": recorded}).attempt
        for asked in State:
            assert bool(store.page(limit=9, states={asked})) is (asked is attempt.public_state)
        assert store.page(limit=9, states=set(State)) == [attempt]

    # ---- placing --------------------------------------------------------------------------------------------

    def test_a_placement_starts_an_attempt_with_the_next_fence(self, store: ControlStore) -> None:
        self.fill(store, "a", "b")
        (placed,) = store.assign(place(("b", "n1")))
        assert (placed.attempt_id, placed.state, placed.node_id, placed.fence) == ("b", State.STARTING, "n1", 1)
        store.change("b", {}, {"state": State.QUEUED, "node_id": None})
        assert store.assign(place(("b", "n2")))[0].fence == 2

    def test_the_planner_sees_the_queue_and_the_places_taken(self, store: ControlStore) -> None:
        self.fill(store, "r", priority=Priority.RERUN)
        self.fill(store, "a", "b", "c", challenge_id="x")
        store.change("a", {}, {"state": State.RUNNING, "node_id": "n1"})
        store.change("b", {}, {"state": State.STARTING, "node_id": "n1"})
        self.fill(store, "j", "s")
        store.change("j", {}, {"state": State.JUDGING, "node_id": "n1"})
        store.change("s", {}, {"state": State.SCORED, "node_id": "n1"})
        seen: list[object] = []

        def planner(queue: Sequence[QueueEntry], active: Active) -> list[Placement]:
            seen.append([entry.attempt_id for entry in queue])
            seen.append((active.total, active.by_challenge["x"], active.by_node["n1"], active.by_agent["agent-of-a"]))
            return []

        assert store.assign(planner) == []
        assert seen == [["c", "r"], (2, 2, 2, 1)]

    def test_placing_what_is_not_queued_places_nothing(self, store: ControlStore) -> None:
        self.fill(store, "a", "b")
        store.change("b", {}, {"state": State.RUNNING})
        with pytest.raises(ValueError, match="not queued"):
            store.assign(place(("a", "n1"), ("b", "n1")))
        assert [(a.attempt_id, a.state, a.fence) for a in store.find({})] == [
            ("a", State.QUEUED, 0),
            ("b", State.RUNNING, 0),
        ]

    # ---- the rest -------------------------------------------------------------------------------------------

    def test_readings_of_another_boot_are_rebased(self, store: ControlStore) -> None:
        store.adopt_clock("boot-1", 10.0)
        self.fill(store, "a", queued_mark=11.0)
        store.change("a", {}, {"started_mark": 12.0, "judging_until": 99.0})
        store.adopt_clock("boot-1", 50.0)
        same = store.attempt("a")
        assert same is not None and (same.queued_mark, same.started_mark) == (11.0, 12.0)
        store.adopt_clock("boot-2", 3.0)
        other = store.attempt("a")
        assert other is not None
        assert (other.queued_mark, other.started_mark, other.judging_until, other.ended_mark) == (3.0, 3.0, 3.0, None)

    def test_nodes_keep_what_the_operator_set(self, store: ControlStore) -> None:
        node = NodeRow(node_id="n1", endpoint="unix:///a", agent_endpoint="unix:///b", capacity=4, boot_id="x")
        assert store.put_node(node) == node
        assert store.set_draining(request_key(), "n1", True).draining
        moved = NodeRow(node_id="n1", endpoint="unix:///c", agent_endpoint="unix:///b", capacity=2, boot_id="y")
        kept = store.put_node(moved)
        assert (kept.draining, kept.endpoint, kept.capacity) == (True, "unix:///c", 2)
        assert store.nodes() == [kept]

    def test_draining_is_answered_once_per_request(self, store: ControlStore) -> None:
        store.put_node(NodeRow(node_id="n1", endpoint="e", agent_endpoint="a", capacity=1))
        key = request_key("drain")
        store.set_draining(key, "n1", True)
        store.set_draining(request_key("undrain"), "n1", False)
        assert not store.set_draining(key, "n1", True).draining
        with pytest.raises(NodeUnknown):
            store.set_draining(request_key("c"), "n9", True)
        with pytest.raises(RequestIdReused):
            store.set_draining(request_key("other", key.request_id), "n1", True)

    def test_challenges_and_documents(self, store: ControlStore) -> None:
        row = ChallengeRow(
            digest="sha256:1",
            challenge_id="c",
            size_bytes=3,
            spec_json="{}",
            created_ns=5,
            network_json='{"digest":"sha256:2"}',
            network_digest="sha256:2",
        )
        store.put_challenge(row)
        store.put_challenge(ChallengeRow(digest="sha256:1", challenge_id="d", size_bytes=4, spec_json="", created_ns=6))
        assert store.challenge("sha256:1") == row
        assert store.challenge("sha256:2") is None
        store.put_documents("a", {("objective", "test_results.json"): b"{}", ("process", "x"): b"\xff"})
        store.put_documents("a", {("objective", "test_results.json"): b"[]"})
        assert store.documents("a") == {("objective", "test_results.json"): b"[]"}
        assert store.documents("b") == {}


class TestMemoryStore(ControlStoreContract):
    @pytest.fixture
    def store(self) -> Iterator[ControlStore]:
        yield MemoryStore()


class TestSqliteStore(ControlStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[ControlStore]:
        store = SqlStore(open_engine(str(tmp_path / "control.db")))
        yield store
        store.close()

    def test_a_change_that_is_told_again_is_kept_like_any_other(self, tmp_path: Path) -> None:
        where = str(tmp_path / "hasty.db")
        first = SqlStore(open_engine(where))
        self.fill(first, "att_1")
        assert first.change("att_1", {}, {"state": State.RUNNING}, told_again=True).applied
        second = SqlStore(open_engine(where))  # another life, while the first never closed its database
        found = second.attempt("att_1")
        assert found is not None and found.state is State.RUNNING
        second.close()
        first.close()

    def test_everything_survives_reopening(self, tmp_path: Path) -> None:
        where = str(tmp_path / "again.db")
        first = SqlStore(open_engine(where))
        key = request_key()
        kept, _ = first.insert_attempt(key, new_attempt("att_1"), FAR)
        first.close()
        second = SqlStore(open_engine(where))
        assert second.attempt("att_1") == kept
        assert second.insert_attempt(key, new_attempt("att_2"), FAR) == (kept, False)
        second.close()


class TestPostgresStore(ControlStoreContract):
    @pytest.fixture
    def store(self, postgres_cluster: Cluster) -> Iterator[ControlStore]:
        store = SqlStore(open_engine(postgres_cluster.new_database()))
        yield store
        store.close()
