"""Denied calls: bounded in events, exact in number."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.trace.escapes import FIRST_WINDOW_NS, LONGEST_WINDOW_NS, MAX_KEYS, WHOLE, EscapeCounter
from daemon.trace.facts import Denied


def denied(name: str = "mount", result: str = "EPERM") -> Denied:
    return Denied(name, result, 10, "mount a b", 5, False)


def counts(events: list) -> int:
    return sum(each.get("count", 1) for each in events)


def test_the_first_are_told_whole_and_the_rest_in_numbers() -> None:
    counter = EscapeCounter()
    events = [event for step in range(30_000) for event in counter.add(denied(), step * 100_000)]
    events += counter.flush(10**12)
    assert events[0] == {
        "timestamp_ns": 0,
        "syscall": "mount",
        "pid": 10,
        "command_line": "mount a b",
        "result": "EPERM",
        "guest_time_ns": 5,
    }
    assert all("count" not in event for event in events[:WHOLE])
    assert len(events) < WHOLE + 10
    assert counts(events) == counter.total == 30_000


def test_names_and_results_are_counted_apart() -> None:
    counter = EscapeCounter(total=WHOLE, told=WHOLE)
    for name, result in (("mount", "EPERM"), ("mount", "EINVAL"), ("umount2", "EPERM"), ("mount", "EPERM")):
        assert counter.add(denied(name, result), 0) == []
    found = {(e["syscall"], e["result"]): e.get("count", 1) for e in counter.flush(1)}
    assert found == {("mount", "EPERM"): 2, ("mount", "EINVAL"): 1, ("umount2", "EPERM"): 1}


def test_a_quiet_counter_owes_nothing_and_a_busy_one_pays_when_due() -> None:
    counter = EscapeCounter(told=WHOLE)
    assert counter.due(10**15) == []
    counter.add(denied(), 0)
    assert counter.due(FIRST_WINDOW_NS - 1) == []
    assert counts(counter.due(FIRST_WINDOW_NS)) == 1


def test_the_window_grows_to_its_longest() -> None:
    counter, now, events = EscapeCounter(told=WHOLE), 0, 0
    for _ in range(3_600):
        now += 1_000_000_000
        events += len(counter.add(denied(), now))
    assert events <= 8 + 3_600 * 1_000_000_000 // LONGEST_WINDOW_NS


def test_results_that_a_hostile_sentry_makes_up_are_bounded() -> None:
    counter = EscapeCounter(told=WHOLE)
    for number in range(4_096):
        counter.add(denied(result=f"E{number}"), 0)
    events = counter.flush(1)
    assert len(events) <= MAX_KEYS + 1
    assert counts(events) == 4_096


def test_it_goes_on_from_what_the_spool_holds() -> None:
    counter = EscapeCounter(total=500, told=WHOLE)
    counter.add(denied(), 0)
    assert counter.total == 501
    assert counter.flush(1)[0].get("count", 1) == 1


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["mount", "umount2"]), st.integers(0, 3 * FIRST_WINDOW_NS)), max_size=400))
def test_the_sum_of_counts_is_always_exact(calls: list[tuple[str, int]]) -> None:
    counter, now, events = EscapeCounter(), 0, []
    for name, step in calls:
        now += step
        events += counter.due(now) + counter.add(denied(name), now)
    events += counter.flush(now)
    assert counts(events) == counter.total == len(calls)
    assert counter.told == len(events)
