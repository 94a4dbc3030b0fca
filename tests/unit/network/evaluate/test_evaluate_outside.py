"""The pieces of the outside: every address is in exactly one, and no rule tells two of one piece apart."""

from __future__ import annotations

import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from network.evaluate.labels import Selector
from network.evaluate.outside import ROOTS, inside, pieces
from network.evaluate.rules import Block, Direction, Rule
from network.evaluate.traffic import EVERYTHING

_NETWORKS = st.builds(
    lambda value, length: ipaddress.ip_network((value, length), strict=False),
    st.integers(0, 255).map(lambda low: ipaddress.IPv4Address((10 << 24) + low)),
    st.integers(24, 32),
)


def _rules(networks: list[ipaddress.IPv4Network]) -> list[Rule]:
    peers = tuple(Block(network) for network in networks)
    return [Rule("r", Selector(()), Direction.EGRESS, False, True, peers, EVERYTHING)]


@given(st.lists(_NETWORKS, max_size=6), st.integers(0, 255))
def test_the_representative_of_an_address_s_piece_lies_in_the_same_networks(
    networks: list[ipaddress.IPv4Network], low: int
) -> None:
    found = ipaddress.IPv4Address((10 << 24) + low)
    home = [piece for piece in pieces(_rules(networks)) if found in piece.network]
    smallest = max(home, key=lambda piece: piece.network.prefixlen)
    stand_in = smallest.representative.address
    assert stand_in is not None
    assert [found in network for network in networks] == [stand_in in network for network in networks]


def test_a_network_that_others_tile_has_no_piece() -> None:
    halves = [ipaddress.IPv4Network("10.0.0.0/25"), ipaddress.IPv4Network("10.0.0.128/25")]
    whole = ipaddress.IPv4Network("10.0.0.0/24")
    assert whole not in {piece.network for piece in pieces(_rules([whole, *halves]))}


def test_both_families_are_always_there() -> None:
    assert {piece.network for piece in pieces([])} == set(ROOTS)
    assert not inside(ROOTS[1], ROOTS[0])
