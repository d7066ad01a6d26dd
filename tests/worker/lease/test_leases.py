"""Leases: the jobs that this process holds, from the claim until the settle."""

from __future__ import annotations

import pytest

from django_pgqueue.worker.lease.leases import Held, Leases
from tests.tasks.test_outcome import claimed


@pytest.fixture
def leases():
    return Leases(60.0, "worker")


def test_a_lease_ends_no_later_than_the_databases(leases):
    """It counts from before the claim was sent."""
    job = claimed(id=1)
    leases.add([job], 100.0)

    held = leases.get(job)
    assert (100.0, 160.0) == (held.claimed_at, held.valid_until)
    assert not held.is_lost
    assert 1 == len(leases)
    assert [held] == leases.all()


def test_a_job_that_still_runs_here_is_not_taken_again(leases):
    """Its first lease is lost then; the others of that claim are held."""
    first, second = claimed(id=1, delivery=1), claimed(id=1, delivery=2)
    other = claimed(id=2)
    leases.add([first], 0.0)

    assert [second] == leases.add([second, other], 70.0)

    assert (None, True) == (leases.get(second), leases.get(first).is_lost)
    assert [leases.get(first)] == leases.lost()
    assert leases.get(other)
    leases.drop(first)
    assert [] == leases.lost()


def test_a_lease_has_run_out_when_it_ends_and_is_not_lost(leases):
    """A renewal makes it last; of those that are held later, none is missed."""
    early, late = claimed(id=1), claimed(id=2)
    leases.add([early], 0.0)
    assert [] == leases.lapsed(59.9)
    leases.add([late], 30.0)

    assert [early] == [held.job for held in leases.lapsed(60.0)]
    leases.get(early).valid_until = 200.0
    assert [] == leases.lapsed(60.0)
    assert [late] == [held.job for held in leases.lapsed(90.0)]
    leases.lose(leases.get(late))
    assert [] == leases.lapsed(100.0)
    assert [early] == [held.job for held in leases.lapsed(200.0)]


def test_a_cancel_is_told_once_whoever_comes_first():
    """To one who asked before it, and to one who asked after."""
    heard = []
    held = Held(claimed(id=1), 0.0, 60.0)
    held.when_cancelled(lambda: heard.append("before"))
    assert not held.is_cancelled
    held.cancel()
    held.cancel()
    held.when_cancelled(lambda: heard.append("after"))

    assert held.is_cancelled
    assert ["before", "after"] == heard


def test_a_task_that_goes_on_after_its_settle_is_waited_for(leases):
    """It has no lease, and is counted beside those that have."""
    job = claimed(id=1)
    leases.add([job], 0.0)
    leases.goes_on(job)
    leases.drop(job)

    assert (1, [], [job]) == (len(leases), leases.all(), leases.settled())
    assert leases.is_settled(job)
    leases.ended(job)
    assert 0 == len(leases)
    assert not leases.is_settled(job)


def test_the_jobs_of_one_run_count_as_one(leases):
    """For caps, and for how much a process takes; until the run is settled."""
    jobs = [claimed(id=number) for number in range(5)]
    leases.add(jobs, 0.0)
    others = [leases.get(job) for job in jobs[2:]]

    leases.lead(jobs[1], others)

    assert (5, 2) == (len(leases), leases.load())
    assert jobs[:2] == [held.job for held in leases.apart()]
    assert (others, []) == (leases.others(jobs[1]), leases.others(jobs[0]))
    assert 5 == len(leases.all())
    leases.drop(jobs[2])
    leases.drop(jobs[1])
    assert (3, []) == (leases.load(), leases.others(jobs[1]))
