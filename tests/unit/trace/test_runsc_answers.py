"""What runsc prints about a sandbox, read as the untrusted text that it is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.trace.runsc import Load, Seen, milliseconds, parse_procfs, parse_ps

PS = b"""UID       PID       PPID      PGID      C         TTY       STIME     TIME      CMD
0         1         0         1         0         ?         23:05     20ms      gauntlet-superv
1000      10        1         10        83        pts/0     23:05     1.02s     python3
"""


def test_a_table_is_read() -> None:
    assert parse_ps(PS) == {1: Load(0, 20.0), 10: Load(83, 1020.0)}


def test_cpu_time_is_the_share_of_a_life_or_the_kernels_part_if_that_is_more() -> None:
    assert Load(83, 20.0).total_ms(10_000_000_000) == 8_300.0
    assert Load(0, 20.0).total_ms(1_000_000_000) == 20.0
    assert Load(50, 20.0).total_ms(-5) == 20.0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("20ms", 20.0),
        ("1.02s", 1020.0),
        ("1m2.5s", 62_500.0),
        ("2h0m0s", 7_200_000.0),
        ("0s", 0.0),
        ("0", 0.0),
        ("", None),
        ("soon", None),
        ("9" * 40 + "s", None),
    ],
)
def test_a_duration_is_read_or_left_out(text: str, value: float | None) -> None:
    assert milliseconds(text) == value


def test_a_dump_is_read_and_what_is_none_left_out() -> None:
    good = {"args": ["sh", "-c"], "clone_ts": 5, "status": {"pid": 10, "ppid": 1, "vm_rss": 64}, "env": ["A=1"]}
    lines = [
        "PROCFS DUMP",
        json.dumps(good),
        json.dumps({"status": {"pid": -1}}),
        json.dumps({"status": {"pid": 1 << 40}}),
        json.dumps({"status": {"pid": 11}, "args": ["a", 5]}),
        json.dumps({"args": []}),
        "{broken",
        "[" * 5_000,
    ]
    assert parse_procfs("\n".join(lines).encode()) == [
        Seen(10, 1, ["sh", "-c"], 65_536, 5),
        Seen(11, 0, ["a"], None, 0),
    ]


@settings(deadline=None)
@given(st.binary(max_size=500))
def test_rubbish_is_no_answer(data: bytes) -> None:
    parse_procfs(data)
    parse_ps(b"HEAD\n" + data)
