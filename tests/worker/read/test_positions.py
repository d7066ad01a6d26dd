"""What a reader remembers of its group's positions, and when it looks again."""

import pytest

from django_pgqueue.log.positions import Known
from django_pgqueue.worker.read.positions import KnownPositions

POLL = 600.0


def known(number, *, position=0, is_free=True, is_halted=False, seconds=None):
    return Known(number, "(0,1)", 1, number, position, is_free, is_halted, seconds, 99)


@pytest.mark.parametrize(
    "others, later, woken_at, expected",
    [
        ([], 0.5, 9.0, False),
        ([], 1.0, 9.0, True),
        # A wake of what is free is no reason to look at once; one of others' is.
        ([], 0.5, 10.2, False),
        ([known(7, is_free=False, seconds=60.0)], 0.5, 10.2, True),
        ([known(7, is_free=False, is_halted=True)], 0.5, 10.2, True),
        ([known(7, is_free=False, is_halted=True)], 0.04, 10.01, False),
        # The end of a back-off.
        ([known(7, is_free=False, seconds=0.3)], 0.2, 9.0, False),
        ([known(7, is_free=False, seconds=0.3)], 0.3, 9.0, True),
    ],
)
def test_a_reader_looks_when_there_is_reason(others, later, woken_at, expected):
    """Once a second as long as it has work; sooner where it may have changed."""
    made = KnownPositions(POLL)
    made.saw([known(1), *others], 10.0)

    assert expected == made.is_old(10.0 + later, woken_at)


@pytest.mark.parametrize(
    "others, woken_at, expected",
    [
        ([], 9.0, None),
        ([known(7, is_free=False, seconds=5.0)], 9.0, 4.9),
        ([known(7, is_free=False, is_halted=True)], 9.0, None),
        # Whatever a wake was of, a look follows it.
        ([], 10.05, 0.9),
        ([known(7, is_free=False, is_halted=True)], 10.05, 0.0),
    ],
)
def test_a_reader_rests_until_there_is_reason_to_look(others, woken_at, expected):
    """Without one, until the poll."""
    made = KnownPositions(POLL)
    made.saw([known(1), *others], 10.0)

    assert expected == pytest.approx(made.wait_seconds(10.1, woken_at))


def test_what_others_have_is_left_until_the_next_look():
    """Those that are read come after the others; the lowest says which days to read."""
    made = KnownPositions(POLL)
    made.saw([known(n, position=10 * n) for n in (3, 1, 2)], 10.0)
    assert 10 == made.lowest
    made.lost(3)

    assert [1, 2] == [each.id for each in made.free]
    assert made.is_old(10.06, 9.0)
    made.gave_back(1, "(0,9)", 70)
    assert [("(0,9)", 70), ("(0,1)", 20)] == [
        (each.tid, each.position) for each in made.free
    ]


def test_what_was_dry_is_so_until_the_bound_or_a_position_moves():
    """An idle reader then asks the database for positions, and claims nothing."""
    made = KnownPositions(POLL)
    made.saw([known(1), known(2)], 10.0)
    assert not made.is_dry(50)

    made.found_nothing(50)
    made.saw([known(2), known(1)], 11.0)
    assert made.is_dry(50)
    assert not made.is_dry(51)

    made.saw([known(1, position=7), known(2)], 12.0)  # Somebody sought.
    assert not made.is_dry(50)
    made.found_nothing(50)
    made.gave_back(1, "(0,2)", 8)
    assert not made.is_dry(50)
    made.found_nothing(50)
    made.saw([known(1, position=8), known(2), known(3)], 13.0)  # Its lease has lapsed.
    assert not made.is_dry(50)
