"""The turn checks: each finds what it is there for, in histories made by hand."""

from __future__ import annotations

from tests.faults import turn_checks
from tests.faults.capacities import LOUD, TURNS_AHEAD_MAX
from tests.faults.test_lane_checks import LEASED, PARKED, Lane, found, operation

BACKLOG = 3 * TURNS_AHEAD_MAX
ONE = 1_000


def story(ahead, own=0):
    """Return what is found when *ahead* of many jobs, and *own*, go before one."""
    loud, quiet = Lane("shared"), Lane("shared")
    operations = []
    for job in range(BACKLOG):
        loud.turn(job, PARKED, at=1.0)
        operations.append(operation(job, 0.0, 1.0))
    for job in range(ONE, ONE + own + 1):
        quiet.turn(job, PARKED, at=2.0)
        operations.append(operation(job, 1.5, 2.0))
    for job in range(ahead):
        loud.turn(job, LEASED, at=3.0)
    for job in range(ONE, ONE + own + 1):
        quiet.turn(job, LEASED, at=4.0)
    loud.changes = [change._replace(customer=LOUD) for change in loud.changes]
    loud.changes += quiet.changes
    return [
        found(check, loud, operations=operations)
        for check in (turn_checks.turns_are_taken, turn_checks.the_loud_have_a_backlog)
    ]


def test_a_job_that_waits_for_many_of_anothers_is_found():
    """As many as there may be are none too many, since its own count against them."""
    assert [0, 0] == story(TURNS_AHEAD_MAX)
    assert [1, 0] == story(TURNS_AHEAD_MAX + 2)
    assert [0, 0] == story(TURNS_AHEAD_MAX + 2, own=5)


def test_a_backlog_that_was_never_there_proves_nothing():
    """Whoever came had nobody before him."""
    lane = Lane("shared").turn(1, PARKED).turn(1, LEASED)

    assert 1 == found(turn_checks.the_loud_have_a_backlog, lane)
