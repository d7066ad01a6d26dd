"""Turns: who is next among lanes, and what starts first in a process."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from django_pgqueue.bounds import PRIORITY_DEFAULT, TIME_MIN
from django_pgqueue.queues.claim import Band
from django_pgqueue.worker.claim.turns import (
    PASSED_SECONDS,
    StartOrder,
    Turn,
    Turns,
    stand_ins,
)

numbers = itertools.count(1)


def jobs(lane, count, *, priority=0, policy="fair"):
    return [
        SimpleNamespace(
            id=next(numbers), lane=lane, lane_policy=policy, priority=priority
        )
        for _ in range(count)
    ]


@pytest.fixture
def order():
    return StartOrder(lambda job: -job.priority)


def put(order, waiting, some):
    """Do with claimed jobs what the executor does."""
    arranged = order.arrange(some, waiting[0] if waiting else None)
    waiting[:] = sorted([*waiting, *arranged], key=order.place)


def lanes_of(waiting):
    return "".join(job.lane for job in waiting)


# In a process ------------------------------------------------------------------------


def test_jobs_of_one_claim_start_in_turn(order):
    """However the claim had them."""
    waiting = []
    put(order, waiting, jobs("a", 4) + jobs("b", 2))

    assert "ababaa" == lanes_of(waiting)


def test_a_job_of_another_lane_starts_after_the_first_that_waits(order):
    """Not after hundreds of one lane that were claimed ahead."""
    waiting = []
    put(order, waiting, jobs("a", 500))
    put(order, waiting, jobs("b", 2))

    assert "abab" == lanes_of(waiting)[:4]


# Of a queue --------------------------------------------------------------------------


def test_a_queue_may_have_something_until_a_claim_has_been_through():
    """And again when it is flagged, or its next job is due."""
    turns = Turns()
    assert turns.of("mail") is None
    turns.flag("mail")
    turn = turns.of("mail")
    turn.has_more = False

    assert turns.of("mail") is None
    turn.due_at = 0.0
    assert turn is turns.of("mail")


def test_what_was_passed_by_is_asked_for_again(monkeypatch):
    """A while later; until then there may be something."""
    clock = SimpleNamespace(monotonic=lambda: 100.0)
    monkeypatch.setattr("django_pgqueue.worker.claim.turns.time", clock)
    turn = Turn(has_more=False)
    turn.pass_by([])
    assert (False, []) == (turn.has_more, turn.to_pass())
    turn.pass_by([1])
    turn.pass_by([2])
    assert (True, [1, 2]) == (turn.has_more, turn.to_pass())

    clock.monotonic = lambda: 100.0 + PASSED_SECONDS
    assert [] == turn.to_pass()


def test_the_poller_is_told_of_a_band_that_begins_where_it_began():
    """So no floor is moved by jobs that stood in none."""
    (job,) = jobs("a", 1)
    job._replace = SimpleNamespace
    bands = [Band("b", 0, TIME_MIN, 3), Band("a", 7, "floor", 3)]

    given = stand_ins("a", 3, job, bands)
    assert [("a", 7, "floor")] * 3 == [(j.queue, j.priority, j.due_at) for j in given]
    (one,) = stand_ins("a", 1, job, ())
    assert (PRIORITY_DEFAULT, TIME_MIN) == (one.priority, one.due_at)
