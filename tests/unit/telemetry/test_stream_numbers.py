"""Every number ends as a line in the spool or inside a gap record, whatever fails in between: a state machine."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from daemon.telemetry.spool import SpoolFile
from daemon.telemetry.stream import SPOOL_CAP, TOO_LARGE, Stream
from formats import event
from tests.support.events import sample

CAP = 6_000


class StreamMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp()) / "att_1"
        self.directory.mkdir()
        self.in_flight: tuple[list[bytes], int] | None = None
        self.kept: set[int] = set()
        self.written: set[int] = set()
        self.given: list[int] = []
        self.stream = self.reopened()

    def reopened(self) -> Stream:
        return Stream("att_1", "resource", SpoolFile(self.directory, "resource"), CAP)

    def on_disk(self) -> list[dict[str, object]]:
        text = (self.directory / "resource.jsonl").read_bytes()
        return [json.loads(line) for line in text.splitlines()]

    @rule(large=st.sampled_from([0, 0, 0, 300, event.MAX_LINE_BYTES]))
    def add(self, large: int) -> None:
        number, kept = self.stream.add({**sample(1), "padding": "x" * large})
        self.given.append(number)
        if kept:
            self.kept.add(number)

    @rule(count=st.integers(1, 5), reason=st.sampled_from(["a", "b"]))
    def lose(self, count: int, reason: str) -> None:
        self.stream.lose(count, reason)

    @rule()
    def lose_unknown(self) -> None:
        self.stream.lose_unknown("overflow")

    @precondition(lambda self: self.in_flight is None and self.stream.pending)
    @rule()
    def take(self) -> None:
        self.in_flight = self.stream.take()

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def write(self) -> None:
        assert self.in_flight is not None
        lines, _ = self.in_flight
        self.stream.file.append(lines)
        self.stream.written(lines)
        self.written |= {value["sequence"] for line in lines if "sequence" in (value := json.loads(line))}
        self.in_flight = None

    @precondition(lambda self: self.in_flight is not None)
    @rule()
    def fail_to_write(self) -> None:
        assert self.in_flight is not None
        lines, first = self.in_flight
        self.kept -= {value["sequence"] for line in lines if "sequence" in (value := json.loads(line))}
        self.stream.failed(lines, first, "spool_write")
        self.in_flight = None

    @rule(torn=st.integers(0, 40))
    def kill_and_restart(self, torn: int) -> None:
        """What was not written is gone with the process, and part of a line may be left."""
        with self.stream.file.path.open("ab") as file:
            file.write(b'{"kind":"resource","attempt_id":"att_1","s'[:torn])
        self.kept = set(self.written)
        self.in_flight = None
        self.stream.file.close()
        self.stream = self.reopened()

    @invariant()
    def the_file_never_has_a_hole(self) -> None:
        assert event.sequence_problems(self.on_disk()) == []

    @invariant()
    def numbers_are_given_once(self) -> None:
        assert len(self.given) == len(set(self.given))

    def teardown(self) -> None:
        while self.in_flight or self.stream.pending or self.stream.accepted != self.stream.settled:
            if self.in_flight is None:
                self.stream.flush_loss()
                self.take()
            self.write()
        self.stream.flush_loss()
        if self.stream.pending:
            self.take()
            self.write()
        lines = self.on_disk()
        assert event.sequence_problems(lines) == []
        found = {line["sequence"] for line in lines if "sequence" in line}
        assert found == self.kept
        missing = set()
        for line in lines:
            if "gap" in line and line["gap"]["last"] is not None:  # type: ignore[index]
                missing |= set(range(line["gap"]["first"], line["gap"]["last"] + 1))  # type: ignore[index]
        assert set(self.given) <= found | missing
        assert found.isdisjoint(missing)
        assert self.stream.events == len(found)
        assert self.stream.gaps == sum("gap" in line for line in lines)
        self.stream.file.close()
        shutil.rmtree(self.directory.parent)


TestStreamMachine = StreamMachine.TestCase
TestStreamMachine.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)


def test_a_stream_past_its_cap_stays_closed_and_says_once_what_it_lost(tmp_path: Path) -> None:
    (tmp_path / "att_1").mkdir()
    stream = Stream("att_1", "resource", SpoolFile(tmp_path / "att_1", "resource"), 1_000)
    results = [stream.add({**sample(1), "padding": "x" * (600 if n == 3 else 0)})[1] for n in range(1, 51)]
    assert results[:2] == [True, True]
    assert not any(results[2:])
    stream.flush_loss()
    lines = [json.loads(line) for line in stream.take()[0]]
    assert lines[-1]["gap"] == {"first": 3, "last": 50, "reason": SPOOL_CAP}
    assert len(lines) == 3


def test_an_event_too_large_for_a_line_is_one_gap(tmp_path: Path) -> None:
    (tmp_path / "att_1").mkdir()
    stream = Stream("att_1", "resource", SpoolFile(tmp_path / "att_1", "resource"), 1 << 30)
    assert stream.add({**sample(1), "padding": "x" * event.MAX_LINE_BYTES}) == (1, False)
    assert stream.add({**sample(1), "bytes": float("nan")}) == (2, False)
    assert stream.add(sample(1)) == (3, True)
    lines = [json.loads(line) for line in stream.take()[0]]
    assert lines[0]["gap"] == {"first": 1, "last": 2, "reason": TOO_LARGE}
    assert lines[1]["sequence"] == 3
