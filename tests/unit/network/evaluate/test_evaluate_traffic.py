"""Sets of traffic behave like sets of (protocol, port) pairs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from network.evaluate.traffic import EVERYTHING, NOTHING, PROTOCOLS, Traffic, traffic, union

PORTS = range(12)


def _sets() -> st.SearchStrategy[Traffic]:
    part = st.builds(
        lambda name, low, width: traffic(name, low, low + width),
        st.sampled_from(["TCP", "UDP", "ICMP"]),
        st.integers(1, 8),
        st.integers(0, 3),
    )
    return st.lists(part, max_size=4).map(union)


def _pairs(found: Traffic) -> set[tuple[str, int]]:
    return {(name, port) for name in PROTOCOLS for port in PORTS if found.has(name, port)}


@given(_sets(), _sets())
def test_union_intersection_and_difference_are_those_of_sets(left: Traffic, right: Traffic) -> None:
    assert _pairs(left | right) == _pairs(left) | _pairs(right)
    assert _pairs(left & right) == _pairs(left) & _pairs(right)
    assert _pairs(left - right) == _pairs(left) - _pairs(right)
    assert bool(left) == bool(_pairs(left))


def test_equal_sets_compare_equal_however_they_were_made() -> None:
    assert traffic("TCP", 1, 5) | traffic("TCP", 6, 9) == traffic("TCP", 1, 9)
    assert traffic("TCP", 1, 9) - traffic("TCP", 4, 9) == traffic("TCP", 1, 3)


def test_any_protocol_has_ports_and_is_never_icmp() -> None:
    found = traffic("ANY", 0)
    assert found.has("SCTP", 65535) and not found.has("ICMP", 8) and not found.has("OTHER", 0)


def test_port_zero_is_every_port_but_icmp_type_zero_is_echo_reply_alone() -> None:
    assert traffic("TCP", 0).has("TCP", 40000)
    assert not traffic("ICMP", 0, 0).has("ICMP", 8)


def test_everything_covers_icmp_and_protocols_without_ports() -> None:
    assert all(EVERYTHING.has(name, 0) for name in PROTOCOLS)
    assert not EVERYTHING - EVERYTHING
    assert NOTHING | EVERYTHING == EVERYTHING
