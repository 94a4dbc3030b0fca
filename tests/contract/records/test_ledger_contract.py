"""What every audit ledger promises, run against each adapter: memory, SQLite, PostgreSQL."""

from __future__ import annotations

import hashlib
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import pytest

from formats.canonical import canonical
from records.database import open_engine
from records.errors import BadRequestError, RecordConflictError
from records.ledger.memory import MemoryLedger
from records.ledger.port import GENESIS_HASH, Ledger
from records.ledger.schema import create_schema
from records.ledger.sql import SqlLedger
from tests.support.postgres import Cluster


def record(attempt_id: str, score: float = 82) -> dict[str, object]:
    return {"attempt_id": attempt_id, "scores": {"objective": score}, "note": "ü\u2028", "none": None}


class LedgerContract(ABC):
    @pytest.fixture
    @abstractmethod
    def ledger(self) -> Iterator[Ledger]: ...

    def test_an_empty_ledger_is_intact(self, ledger: Ledger) -> None:
        report = ledger.verify()
        assert (report.entries, report.head_hash, report.problems) == (0, GENESIS_HASH, ())
        assert ledger.get("att_1") is None

    def test_entries_are_numbered_chained_and_kept_as_canonical_json(self, ledger: Ledger) -> None:
        first = ledger.append("att_1", record("att_1", 82.5))
        second = ledger.append("att_2", record("att_2"))
        assert (first.sequence, first.revision, first.previous_hash) == (1, 1, GENESIS_HASH)
        assert (second.sequence, second.revision, second.previous_hash) == (2, 1, first.entry_hash)
        assert first.record == canonical(record("att_1", 82.5))
        assert ledger.get("att_1") == first
        assert list(ledger.entries()) == [first, second]
        assert list(ledger.entries(after_sequence=1)) == [second]
        report = ledger.verify()
        assert (report.entries, report.head_hash, report.problems) == (2, second.entry_hash, ())

    def test_the_hash_is_the_merkle_leaf_of_the_canonical_entry(self, ledger: Ledger) -> None:
        entry = ledger.append("att_1", record("att_1"))
        whole = {
            "attempt_id": entry.attempt_id,
            "previous_hash": entry.previous_hash,
            "record": json.loads(entry.record),
            "revision": entry.revision,
            "sequence": entry.sequence,
        }
        assert entry.entry_hash == hashlib.sha256(b"\x00" + canonical(whole)).hexdigest()

    def test_the_same_record_again_gives_the_same_entry(self, ledger: Ledger) -> None:
        first = ledger.append("att_1", record("att_1"))
        again = ledger.append("att_1", dict(reversed(record("att_1").items())))
        assert again == first
        assert ledger.append("att_1", record("att_1"), revise=True) == first
        assert ledger.verify().entries == 1

    def test_another_record_is_refused_unless_it_revises(self, ledger: Ledger) -> None:
        first = ledger.append("att_1", record("att_1", 10))
        with pytest.raises(RecordConflictError, match="att_1"):
            ledger.append("att_1", record("att_1", 11))
        ledger.append("att_2", record("att_2"))
        second = ledger.append("att_1", record("att_1", 11), revise=True)
        assert (second.sequence, second.revision) == (3, 2)
        assert ledger.get("att_1") == second
        assert ledger.get("att_1", 1) == first
        assert ledger.get("att_1", 2) == second
        assert ledger.get("att_1", 3) is None
        # An old revision's bytes are no longer the latest: they append, or conflict.
        with pytest.raises(RecordConflictError):
            ledger.append("att_1", record("att_1", 10))
        assert ledger.append("att_1", record("att_1", 10), revise=True).revision == 3
        assert ledger.verify().intact

    @pytest.mark.parametrize(
        "bad",
        [
            {"attempt_id": "att_2"},
            {},
            {"attempt_id": "att_1", "x": float("nan")},
            {"attempt_id": "att_1", "x": 2**64},
            {"attempt_id": "att_1", "x": "\ud800"},
            {"attempt_id": "att_1", "x": b"bytes"},
            {"attempt_id": "att_1", "x": {1: 2}},
            {"attempt_id": "att_1", "x": "y" * (1 << 20)},
        ],
        ids=lambda value: repr(value)[:40],
    )
    def test_what_has_no_canonical_json_or_is_anothers_is_refused(self, ledger: Ledger, bad: dict[str, object]) -> None:
        with pytest.raises(BadRequestError, match="record"):
            ledger.append("att_1", bad)
        assert ledger.verify().entries == 0

    def test_more_entries_than_a_page_are_read_in_order(self, ledger: Ledger) -> None:
        for number in range(1_005):
            ledger.append(f"att_{number}", record(f"att_{number}"))
        assert [entry.sequence for entry in ledger.entries()] == list(range(1, 1_006))
        assert ledger.verify().intact

    def test_concurrent_appends_make_one_chain_and_one_entry_an_attempt(self, ledger: Ledger) -> None:
        everyone = threading.Barrier(4)
        failures: list[BaseException] = []

        def work(own: int) -> None:
            try:
                everyone.wait(timeout=10)
                for number in range(20):
                    ledger.append(f"att_{number}", record(f"att_{number}"))
                    ledger.append(f"att_{own}_{number}", record(f"att_{own}_{number}"))
            except Exception as error:  # noqa: BLE001 - told by the test
                failures.append(error)

        threads = [threading.Thread(target=work, args=(own,)) for own in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        report = ledger.verify()
        assert report.problems == ()
        assert report.entries == 20 + 4 * 20


class TestMemoryLedger(LedgerContract):
    @pytest.fixture
    def ledger(self) -> Iterator[Ledger]:
        yield MemoryLedger()


class TestSqliteLedger(LedgerContract):
    @pytest.fixture
    def ledger(self, tmp_path: Path) -> Iterator[Ledger]:
        engine = open_engine(f"sqlite:///{tmp_path}/audit.db")
        create_schema(engine)
        create_schema(engine)  # a second start finds its table and triggers
        yield SqlLedger(engine)
        engine.dispose()


class TestPostgresLedger(LedgerContract):
    @pytest.fixture
    def ledger(self, postgres_cluster: Cluster) -> Iterator[Ledger]:
        engine = open_engine(postgres_cluster.new_database())
        create_schema(engine)
        create_schema(engine)
        yield SqlLedger(engine)
        engine.dispose()
