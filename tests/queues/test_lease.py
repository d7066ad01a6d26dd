"""Lease: renewed, handed back, or taken from a process that is known to be dead."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from django_pgqueue.conf import Settings
from django_pgqueue.models import ArchivedJob, Job
from django_pgqueue.queues.claim import claim
from django_pgqueue.queues.lease import (
    Rescued,
    extend,
    release,
    renew,
    report_progress,
    rescue,
)
from django_pgqueue.queues.settle import Ended, ack
from django_pgqueue.tasks.prepare import refuse
from tests.harness.factories import LEASE, make_job, make_leased_job

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
YESTERDAY = datetime.now(UTC) - timedelta(days=1)


def clock(cursor):
    cursor.execute("SELECT clock_timestamp()")
    return cursor.fetchone()[0]


def lease_of(job):
    return (job.pk, job.deliveries)


def row(job):
    return Job.objects.values().get(pk=job.pk)


def claim_default(cursor, limit=10, worker="a"):
    return claim(cursor, queues=["default"], worker=worker, limit=limit, lease=LEASE)


def release_all(cursor, claimed, worker="a"):
    leases = [(job.id, job.delivery, job.due_at) for job in claimed]
    return release(cursor, worker=worker, leases=leases)


def rescue_from(cursor, worker="dead", running=(), lease=LEASE):
    return rescue(
        cursor, worker=worker, running=running, lease=lease, message="signal 9"
    )


# Renew -------------------------------------------------------------------------------


def test_a_renewed_lease_ends_one_lease_from_now(cursor):
    """Nothing else of the row changes: no attempt, no delivery."""
    job = make_leased_job("a", visible_at=SECOND)
    unchanged = {
        name: value for name, value in row(job).items() if name != "visible_at"
    }
    before = clock(cursor)

    assert {job.pk} == renew(cursor, worker="a", leases=[lease_of(job)], lease=HOUR)

    renewed = row(job)
    assert before + HOUR <= renewed.pop("visible_at") <= clock(cursor) + HOUR
    assert unchanged == renewed


def test_lost_leases_are_missing_from_the_answer(cursor):
    """Taken over, rescued, settled, or of another worker; and they stay as they are."""
    ours = make_leased_job("a")
    lost = [
        make_leased_job("b"),
        make_job(attempt=1, deliveries=1),
    ]
    taken = make_leased_job("a", attempt=2, deliveries=2)
    before = [row(job) for job in (*lost, taken)]
    leases = [*map(lease_of, [ours, *lost]), (taken.pk, 1), (2**62, 1)]

    assert {ours.pk} == renew(cursor, worker="a", leases=leases, lease=HOUR)
    assert before == [row(job) for job in (*lost, taken)]


def test_a_lapsed_lease_that_nobody_took_can_be_renewed(cursor):
    """A worker that slept too long and was lucky keeps its job."""
    job = make_leased_job("a", visible_at=-HOUR)

    assert {job.pk} == renew(cursor, worker="a", leases=[lease_of(job)], lease=LEASE)
    assert [] == claim_default(cursor, worker="b")


def test_a_locked_row_is_skipped_not_waited_for(cursor, other_cursor):
    """An ack inside a task's open transaction does not hold up the other leases."""
    locked, free = make_leased_job("a"), make_leased_job("a")
    leases = [lease_of(locked), lease_of(free)]
    other_cursor.execute("SET lock_timeout = '1s'")

    with cursor.connection.transaction(force_rollback=True):
        ack(cursor, worker="a", ended=[Ended(locked.pk, 1)])
        assert {free.pk} == renew(other_cursor, worker="a", leases=leases, lease=LEASE)

    assert {locked.pk, free.pk} == renew(
        other_cursor, worker="a", leases=leases, lease=LEASE
    )


def test_renewals_and_settles_of_the_same_rows_do_not_deadlock(new_cursor):
    """Whatever order the two lock them in; every job is settled once."""
    jobs = [make_leased_job("a") for _ in range(200)]
    leases = [lease_of(job) for job in jobs]
    settler, heart = new_cursor(), new_cursor()

    def settle_all():
        done = set()
        for start in range(0, len(jobs), 20):
            batch = jobs[start : start + 20]
            ended = [Ended(job.pk, 1) for job in reversed(batch)]
            done |= ack(settler, worker="a", ended=ended)
        return len(done)

    with ThreadPoolExecutor(1) as pool:
        settled = pool.submit(settle_all)
        while not settled.done():
            renew(heart, worker="a", leases=leases, lease=LEASE)
        assert len(jobs) == settled.result()

    assert len(jobs) == ArchivedJob.objects.count()


# Release -----------------------------------------------------------------------------


def test_a_released_job_is_as_if_it_had_never_been_claimed(cursor):
    """Attempt and place are given back; the delivery is a token and stays."""
    waiting = [make_job(visible_at=-seconds * SECOND) for seconds in (30, 20, 10)]
    before = [row(job) for job in waiting]

    claimed = claim_default(cursor, 2)
    released = release_all(cursor, claimed)

    assert {(job.pk, "default") for job in waiting[:2]} == set(released)
    assert [
        {**before[0], "deliveries": 1},
        {**before[1], "deliveries": 1},
        before[2],
    ] == [row(job) for job in waiting]
    assert [job.pk for job in waiting] == [job.id for job in claim_default(cursor)]


@pytest.mark.parametrize(
    "headers",
    [{}, {"pgqueue.deliveries_before": 2}, {"pgqueue.deliveries_before": "x"}],
)
def test_a_job_that_is_released_again_and_again_still_runs(cursor, headers):
    """A busy queue hands the same jobs back many times before their turn."""
    make_job(headers={"trace": "kept", **headers})
    for _ in range(Settings().deliveries_max + 50):
        release_all(cursor, claim_default(cursor))

    (job,) = claim_default(cursor)

    assert refuse(job, Settings()) is None
    assert "kept" == Job.objects.get().headers["trace"]


def test_a_release_is_fenced(cursor):
    """Another worker's job, and one that was taken over since, stay leased."""
    theirs = make_leased_job("b")
    taken = make_leased_job("a", attempt=2, deliveries=2)
    before = [row(theirs), row(taken)]

    assert [] == release(
        cursor,
        worker="a",
        leases=[(theirs.pk, 1, YESTERDAY), (taken.pk, 1, YESTERDAY)],
    )
    assert before == [row(theirs), row(taken)]


# Rescue ------------------------------------------------------------------------------


def test_a_rescued_job_that_was_running_has_crashed(cursor):
    """The attempt is given back, the crash counted and written down; it runs alone."""
    job = make_leased_job("dead", attempt=2, deliveries=3)

    assert [Rescued(job.pk, "default", crashed=True)] == rescue_from(
        cursor, running=[(job.pk, 3)]
    )

    rescued = Job.objects.get(pk=job.pk)
    assert (1, 1, 3, True) == (
        rescued.attempt,
        rescued.crashes,
        rescued.deliveries,
        rescued.runs_alone,
    )
    assert (None, None) == (rescued.leased_by, rescued.leased_at)
    (error,) = rescued.errors
    assert ("worker_lost", "dead", 2, 3, "signal 9") == (
        error["kind"],
        error["worker"],
        error["attempt"],
        error["delivery"],
        error["message"],
    )


def test_a_crash_says_how_many_ran_there(cursor):
    """So that those that it met are run by halves, where they are many."""
    jobs = [make_leased_job("dead") for _ in range(3)]

    rescue_from(cursor, running=[(job.pk, 1) for job in jobs])

    assert [2, 2, 2] == [job.errors[0]["beside"] for job in Job.objects.all()]


@pytest.mark.parametrize("beside,crashes", [(0, 2), (2, 1)])
def test_a_suspect_that_crashed_among_others_is_not_counted_again(
    cursor, beside, crashes
):
    """Only one that was alone has shown that it is to blame."""
    jobs = [
        make_leased_job("dead", runs_alone=True, crashes=1) for _ in range(1 + beside)
    ]

    rescue_from(cursor, running=[(job.pk, 1) for job in jobs])

    for job in Job.objects.all():
        assert (crashes, True, 0) == (job.crashes, job.runs_alone, job.attempt)
        assert ["worker_lost"] == [error["kind"] for error in job.errors]


def test_a_rescued_job_that_was_only_claimed_did_not_crash(cursor):
    """It goes back as if never claimed: no crash, no error, not alone."""
    job = make_leased_job("dead")

    assert [Rescued(job.pk, "default", crashed=False)] == rescue_from(cursor)

    rescued = Job.objects.get(pk=job.pk)
    assert (0, 0, 1, False, []) == (
        rescued.attempt,
        rescued.crashes,
        rescued.deliveries,
        rescued.runs_alone,
        rescued.errors,
    )


def test_only_the_delivery_that_ran_has_crashed(cursor):
    """A slot that names an older delivery of the job accuses nobody."""
    job = make_leased_job("dead", attempt=2, deliveries=2)

    assert [Rescued(job.pk, "default", crashed=False)] == rescue_from(
        cursor, running=[(job.pk, 1)]
    )


def test_a_rescue_passes_over_a_settle_that_is_on_its_way(cursor, other_cursor):
    """The dead client's last ack may still commit: nobody waits, and it wins."""
    job = make_leased_job("dead")
    other_cursor.execute("SET lock_timeout = '1s'")

    with cursor.connection.transaction():
        ack(cursor, worker="dead", ended=[Ended(job.pk, 1)])
        (met,) = rescue_from(other_cursor, running=[lease_of(job)])
    again = rescue_from(other_cursor, running=[lease_of(job)])

    assert (job.pk, True) == (met.id, met.is_locked)
    assert [] == again
    assert 1 == ArchivedJob.objects.count()


# A task asks for more time -----------------------------------------------------------


def extend_by(cursor, job, lease, *, worker="a", delivery=1):
    return extend(cursor, worker=worker, job_id=job.pk, delivery=delivery, lease=lease)


def test_a_lease_is_extended_to_what_the_task_asks_for(cursor):
    """From now on, by the database's clock; the answer is what it has left."""
    job = make_leased_job("a")

    left = extend_by(cursor, job, timedelta(hours=1))

    assert 3600 == pytest.approx(left, abs=0.001)
    more = Job.objects.get().visible_at - job.visible_at
    assert 3540 == pytest.approx(more.total_seconds(), abs=5)


def test_a_heartbeat_does_not_take_an_extension_back(cursor):
    """It renews with the worker's own, shorter lease."""
    job = make_leased_job("a")
    extend_by(cursor, job, timedelta(hours=1))
    before = Job.objects.get().visible_at

    assert {job.pk} == renew(cursor, worker="a", leases=[(job.pk, 1)], lease=LEASE)
    assert before == Job.objects.get().visible_at


@pytest.mark.parametrize(
    "who", [{"worker": "b"}, {"delivery": 2}, {"delivery": 0}], ids=str
)
def test_extensions_and_progress_are_fenced(cursor, who):
    """Another worker, or another delivery, is told that the lease is lost."""
    job = make_leased_job("a")
    before = Job.objects.values().get()
    fence = {"worker": "a", "job_id": job.pk, "delivery": 1, **who}

    assert None is extend(cursor, **fence, lease=LEASE)
    assert False is report_progress(cursor, **fence, progress="1")
    assert before == Job.objects.values().get()
