"""A merged record taken apart: whatever was merged, its operations end as the path is now."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from daemon.fswatch.changes import CREATE, DELETE, ENTERING, MODIFY, MOVED_FROM, MOVED_TO, in_order


def test_what_was_created_and_deleted():
    assert in_order(CREATE | MODIFY | DELETE, exists=False) == [CREATE, MODIFY, DELETE]
    assert in_order(CREATE | DELETE, exists=True) == [DELETE, CREATE]
    assert in_order(CREATE | MODIFY | MOVED_FROM, exists=False) == [CREATE, MODIFY, MOVED_FROM]


def test_there_and_back_again():
    assert in_order(MOVED_FROM | MOVED_TO, exists=True) == [MOVED_FROM, MOVED_TO]
    assert in_order(MOVED_FROM | MOVED_TO, exists=False) == [MOVED_TO, MOVED_FROM]
    assert in_order(CREATE | MOVED_FROM | MOVED_TO, exists=True) == [CREATE, MOVED_FROM, MOVED_TO]


def test_a_write_comes_while_the_file_is_there():
    assert in_order(CREATE | MODIFY, exists=True) == [CREATE, MODIFY]
    assert in_order(MODIFY | DELETE, exists=False) == [MODIFY, DELETE]
    assert in_order(DELETE | CREATE | MODIFY, exists=True) == [DELETE, CREATE, MODIFY]


BITS = (MODIFY, MOVED_FROM, MOVED_TO, CREATE, DELETE)


@given(st.sets(st.sampled_from(BITS), min_size=1), st.booleans())
def test_nothing_is_lost_and_the_end_is_right(bits: set[int], exists: bool):
    mask = sum(bits)
    operations = in_order(mask, exists)
    assert sorted(operations) == sorted(bits)
    moves = [bit for bit in operations if bit != MODIFY]
    entering = [bool(bit & ENTERING) for bit in moves]
    assert (
        all(one != other for one, other in itertools.pairwise(entering)) or abs(2 * sum(entering) - len(entering)) > 1
    )
    if entering and 2 * sum(entering) == len(entering):  # else a later record says how it ended
        assert entering[-1] is exists
