"""The lane checks: each finds what it is there for, in histories made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.faults import lane_checks
from tests.faults.capacities import BURST, LIMIT, LOUD, TURNS_AHEAD_MAX
from tests.faults.evidence import Evidence, Harm, Operation, Run
from tests.faults.history import Change, Row
from tests.faults.verdict import Verdict

PARKED, WAITING = Row(), Row(visible_at=1.0)
LEASED = Row(visible_at=9.0, leased_by="a", deliveries=1)


class Lane:
    """The history of one lane, told step by step; a second passes at each."""

    def __init__(self, task: str = "grouped") -> None:
        self.task = task
        self.rows: dict[int, Row] = {}
        self.changes: list[Change] = []

    def turn(self, job: int, new: Row | None, *, at: float | None = None) -> Lane:
        """Change a row, or take it away."""
        old, seq = self.rows.get(job), len(self.changes)
        operation = "INSERT" if old is None else "DELETE" if new is None else "UPDATE"
        self.changes.append(
            Change(
                seq=seq,
                at=float(seq) if at is None else at,
                transaction=str(seq),
                operation=operation,
                job=job,
                key=f"op{job}.0",
                task=self.task,
                old=old,
                new=new,
                customer="c1",
            )
        )
        if new is None:
            del self.rows[job]
        else:
            self.rows[job] = new
        return self

    def lease(self, *jobs: int) -> Lane:
        """Store jobs, let them through and claim them."""
        for job in jobs:
            self.turn(job, PARKED).turn(job, WAITING).turn(job, LEASED)
        return self


def found(check, lane, **more):
    """Return how often a check finds something."""
    changes = sorted(lane.changes, key=lambda change: (change.job, change.seq))
    return len(list(check(Evidence(changes=changes, **more), Verdict())))


def test_two_leases_in_a_group_are_found():
    """Whoever holds the other one, and whether it is about to end."""
    lane = Lane().lease(1, 2).turn(1, None).turn(2, None)

    assert 1 == found(lane_checks.lanes_hold_no_more, lane)


def test_one_more_lease_than_a_limit_has_is_found():
    """And so many as it has are none too many."""
    lane = Lane("limited").lease(*range(LIMIT))

    assert 0 == found(lane_checks.lanes_hold_no_more, lane)
    assert 1 == found(lane_checks.lanes_hold_no_more, lane.lease(LIMIT))


def test_a_limit_that_was_never_full_proves_nothing():
    """Such a run had too little to do."""
    lane = Lane("limited").lease(*range(LIMIT - 1))

    assert 1 == found(lane_checks.limits_are_reached, lane)
    assert 0 == found(lane_checks.limits_are_reached, lane.lease(LIMIT))


def operation(job, at, answered_at, outcome="ack"):
    return Operation(f"op{job}", 1, outcome, at, answered_at=answered_at)


def started(first, second):
    """Return runs of two jobs, in the order of the arguments."""
    return {(job, 1): Run(job, 1, 7, at) for at, job in enumerate((first, second))}


def test_who_was_committed_before_and_starts_later_is_found():
    """Before is what the client knew: an answer before the other's attempt."""
    lane = Lane().turn(1, PARKED).turn(2, PARKED)
    apart = [operation(1, 1.0, 2.0), operation(2, 3.0, 4.0)]

    def wrong(runs, operations):
        check = lane_checks.groups_keep_order
        return found(check, lane, runs=runs, operations=operations)

    assert 0 == wrong(started(1, 2), apart)
    assert 1 == wrong(started(2, 1), apart)


def test_room_that_nobody_uses_is_found():
    """A job stays parked though its lane has a place, until it is let through."""
    limit = lane_checks.ROOM_SECONDS_MAX

    def wrong(seconds):
        lane = Lane().turn(1, PARKED, at=5.0).turn(1, WAITING, at=5.0 + seconds)
        return found(lane_checks.no_place_is_lost, lane)

    assert 0 == wrong(limit - 1)
    assert 1 == wrong(limit + 1)


def test_a_point_at_which_nobody_died_is_found():
    """Else a promotion that has moved elsewhere would go untried."""
    died = Harm("kill", "promote.after", frozenset({7}), 1.0, 1.0)

    assert 1 == found(lane_checks.promoters_died, Lane(), harms=[died])


def claimed_at(*times, task="paced"):
    """Return a lane of one job, leased at these times."""
    lane = Lane(task)
    for delivery, at in enumerate(times, 1):
        lane.turn(1, PARKED).turn(1, WAITING)
        lane.turn(1, replace(LEASED, deliveries=delivery, leased_at=at))
    return lane


def test_one_lease_too_many_in_a_time_is_found():
    """However long ago the last one was; a lease that is renewed is none."""
    times = [50.0, 100.0, 100.0, 100.0, 100.02]

    assert 1 == found(lane_checks.rates_hold, claimed_at(*times))
    assert 0 == found(lane_checks.rates_hold, claimed_at(*times[:-1]))
    assert 4 - 3 - 15 * 0.022 == pytest.approx(lane_checks.excess(times))


def test_a_rate_that_nobody_uses_is_found():
    """What is parked waits for a turn of its rate, and no longer."""
    lane = Lane("paced").turn(1, PARKED, at=0.0).turn(1, WAITING, at=20.0)

    assert 1 == found(lane_checks.rates_are_used, lane)


def test_one_more_lease_than_a_queue_takes_is_found():
    """And so many as it takes are none too many."""
    queue = Lane("metered").lease(*range(LIMIT))

    assert 0 == found(lane_checks.queue_holds_no_more, queue)
    assert 1 == found(lane_checks.queue_holds_no_more, queue.lease(LIMIT))


def test_one_claim_more_than_a_burst_is_found():
    """All of them in the same moment."""
    claims = [100.0] * BURST

    def wrong(times):
        return found(lane_checks.queue_keeps_rate, claimed_at(*times, task="metered"))

    assert 0 == wrong(claims)
    assert 1 == wrong([*claims, 100.0])


def test_a_queue_that_was_never_full_proves_nothing():
    """Neither its places nor its turns were all taken."""
    queue = Lane("metered").lease(*range(LIMIT - 1))

    assert 2 == found(lane_checks.queue_is_full, queue)


def test_a_place_that_nobody_takes_is_found():
    """A job waits for a place that is free; where all are taken, it waits for one."""
    limit = lane_checks.ROOM_SECONDS_MAX

    def wrong(seconds, leased):
        queue = Lane("metered")
        for job in range(leased):
            queue.turn(job, WAITING, at=1.0).turn(job, LEASED, at=1.0)
        queue.turn(LIMIT, WAITING, at=1.0).turn(LIMIT, LEASED, at=1.0 + seconds)
        return found(lane_checks.no_permit_is_lost, queue)

    assert 0 == wrong(limit - 1, LIMIT - 1)
    assert 1 == wrong(limit + 1, LIMIT - 1)
    assert 0 == wrong(limit + 1, LIMIT)


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
        for check in (lane_checks.turns_are_taken, lane_checks.the_loud_have_a_backlog)
    ]


def test_a_job_that_waits_for_many_of_anothers_is_found():
    """As many as there may be are none too many, since its own count against them."""
    assert [0, 0] == story(TURNS_AHEAD_MAX)
    assert [1, 0] == story(TURNS_AHEAD_MAX + 2)
    assert [0, 0] == story(TURNS_AHEAD_MAX + 2, own=5)


def test_a_backlog_that_was_never_there_proves_nothing():
    """Whoever came had nobody before him."""
    lane = Lane("shared").turn(1, PARKED).turn(1, LEASED)

    assert 1 == found(lane_checks.the_loud_have_a_backlog, lane)
