"""The queue checks: each finds what it is there for, in histories made by hand."""

from __future__ import annotations

from tests.faults import lane_checks, queue_checks
from tests.faults.capacities import BURST, LIMIT
from tests.faults.test_lane_checks import LEASED, WAITING, Lane, claimed_at, found


def test_one_more_lease_than_a_queue_takes_is_found():
    """And so many as it takes are none too many."""
    queue = Lane("metered").lease(*range(LIMIT))

    assert 0 == found(queue_checks.queue_holds_no_more, queue)
    assert 1 == found(queue_checks.queue_holds_no_more, queue.lease(LIMIT))


def test_one_claim_more_than_a_burst_is_found():
    """All of them in the same moment."""
    claims = [100.0] * BURST

    def wrong(times):
        return found(queue_checks.queue_keeps_rate, claimed_at(*times, task="metered"))

    assert 0 == wrong(claims)
    assert 1 == wrong([*claims, 100.0])


def test_a_queue_that_was_never_full_proves_nothing():
    """Neither its places nor its turns were all taken."""
    queue = Lane("metered").lease(*range(LIMIT - 1))

    assert 2 == found(queue_checks.queue_is_full, queue)


def test_a_place_that_nobody_takes_is_found():
    """A job waits for a place that is free; where all are taken, it waits for one."""
    limit = lane_checks.ROOM_SECONDS_MAX

    def wrong(seconds, leased):
        queue = Lane("metered")
        for job in range(leased):
            queue.turn(job, WAITING, at=1.0).turn(job, LEASED, at=1.0)
        queue.turn(LIMIT, WAITING, at=1.0).turn(LIMIT, LEASED, at=1.0 + seconds)
        return found(queue_checks.no_permit_is_lost, queue)

    assert 0 == wrong(limit - 1, LIMIT - 1)
    assert 1 == wrong(limit + 1, LIMIT - 1)
    assert 0 == wrong(limit + 1, LIMIT)
