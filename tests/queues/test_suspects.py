"""Suspects: jobs whose process died are claimed apart, one by one or by halves."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_pgqueue.models import Job
from django_pgqueue.queues.claim import Claimed
from django_pgqueue.queues.suspects import (
    claim_suspects,
)
from tests.harness.factories import LEASE, make_job, make_jobs

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


def lost(beside, worker="dead"):
    """Return the errors of a job whose process died while it ran *beside* others."""
    return [{"kind": "worker_lost", "worker": worker, "beside": beside}]


def take(cursor, limit=1_000, *, worker="a", queues=("default",)) -> list[Claimed]:
    return claim_suspects(
        cursor, queues=queues, worker=worker, limit=limit, lease=LEASE
    )


def test_a_suspect_is_leased_as_any_job(cursor):
    """The delivery rises, the attempt is counted, the lease is by the database."""
    job = make_job(runs_alone=True, crashes=1, attempt=1, deliveries=2)

    (claimed,) = take(cursor)

    row = Job.objects.get()
    assert (job.pk, 3, 2, 1, True) == (
        claimed.id,
        claimed.delivery,
        claimed.attempt,
        claimed.crashes,
        claimed.runs_alone,
    )
    assert "a" == row.leased_by
    assert row.visible_at == claimed.claimed_at + LEASE


def test_the_longest_due_goes_first_and_alone(cursor):
    """However many wait; what is not due, and what is no suspect, is not for it."""
    make_job(visible_at=-HOUR)
    make_job(runs_alone=True, visible_at=HOUR)
    second = make_job(runs_alone=True, visible_at=-SECOND)
    first = make_job(runs_alone=True, visible_at=-2 * SECOND)

    assert [[first.pk], [second.pk], []] == [
        [job.id for job in take(cursor)] for _ in range(3)
    ]


def test_two_workers_take_two_suspects(cursor, other_cursor):
    """What one of them has locked the other passes over."""
    first, second = make_jobs(2, runs_alone=True)

    with cursor.connection.transaction():
        assert [first] == [job.id for job in take(cursor)]
        assert [second] == [job.id for job in take(other_cursor, worker="b")]


def test_a_large_crowd_is_run_by_halves(cursor, other_cursor):
    """Two workers take a half each; who was elsewhere has no part in it."""
    make_jobs(101, runs_alone=True, crashes=1, errors=lost(100))
    make_jobs(70, runs_alone=True, crashes=1, errors=lost(100, "other"))
    alone = make_job(runs_alone=True, crashes=1, errors=lost(0))

    first, second = take(cursor), take(other_cursor, worker="b")

    assert (51, 50) == (len(first), len(second))
    ours = set(range(min(j.id for j in first), alone.pk - 70))
    assert ours == {job.id for job in [*first, *second]}
    assert 51 == len(take(cursor))


@pytest.mark.parametrize(
    "errors",
    [
        [],
        [{"kind": "worker_lost"}],
        [{"kind": "worker_lost", "worker": "dead", "beside": "many"}],
        [{"kind": "worker_lost", "worker": "dead", "beside": 1e300}],
        [{"kind": "worker_lost", "worker": "dead", "beside": -5}],
        [{"kind": "lease_expired", "worker": "dead", "beside": 500}],
        [*lost(500), {"kind": "error"}],
    ],
)
def test_whoever_has_no_known_crowd_runs_alone(cursor, errors):
    """Whatever stands in its errors; and one that has survived a run."""
    make_jobs(3, runs_alone=True, crashes=1, errors=errors)

    assert 1 == len(take(cursor))
