"""Cancel: what waits is archived at once, what runs is asked to stop."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_pgqueue.models import ArchivedJob, Job
from django_pgqueue.queues.cancel import ASK_AGAIN_SECONDS, cancel
from django_pgqueue.queues.claim import claim
from django_pgqueue.queues.lease import cancel_requests
from django_pgqueue.queues.settle import (
    KEPT_COLUMNS,
)
from tests.harness.factories import (
    LEASE,
    make_job,
    make_leased_job,
)

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)

NOT_RUNNING = {
    "ready": {},
    "scheduled": {"visible_at": HOUR},
    "retrying": {"visible_at": HOUR, "attempt": 2, "deliveries": 3},
    "parked": {"visible_at": None},
    "in a lane": {"lane": "l"},
    "asked to stop before": {"cancel_requested_at": -HOUR, "deliveries": 1},
}


def summary(answer):
    return sorted(answer.cancelled), sorted(answer.requested), sorted(answer.locked)


def claim_one(cursor, worker="a"):
    (job,) = claim(cursor, queues=["default"], worker=worker, limit=1, lease=LEASE)
    return job


# What becomes of a job ----------------------------------------------------------------


@pytest.mark.parametrize("columns", NOT_RUNNING.values(), ids=NOT_RUNNING.keys())
def test_a_job_that_does_not_run_is_archived_at_once(cursor, columns):
    """In one statement: it is in the archive and in no other table."""
    job = make_job(**columns)

    assert ([job.pk], [], []) == summary(cancel(cursor, [job.pk]))
    assert ("cancelled", None, None) == ArchivedJob.objects.values_list(
        "state", "started_at", "worker"
    ).get(pk=job.pk)
    assert 0 == Job.objects.count()


def test_a_cancelled_job_keeps_what_it_is(cursor):
    """Every shared column arrives unchanged."""
    job = make_job(
        queue="mail",
        args=[1],
        kwargs={"b": "ü"},
        headers={"tags": ["x"]},
        priority=7,
        expires_at=HOUR,
        attempt=2,
        max_attempts=9,
        crashes=1,
        deliveries=4,
        dedup_key="k",
        progress={"done": 1},
        workflow_id=1,
        parent_id=2,
        message_id=3,
        schedule_id=4,
    )
    kept = KEPT_COLUMNS.split(", ")
    before = Job.objects.values(*kept).get()

    cancel(cursor, [job.pk])

    assert before == ArchivedJob.objects.values(*kept).get()


def test_a_running_job_is_asked_to_stop(cursor):
    """The row stays with its worker, and says since when."""
    job = make_leased_job("a")

    assert ([], [job.pk], []) == summary(cancel(cursor, [job.pk]))

    row = Job.objects.get(pk=job.pk)
    assert ("a", job.visible_at, 1) == (row.leased_by, row.visible_at, row.deliveries)
    assert row.cancel_requested_at is not None


def test_who_cancelled_is_noted_in_the_errors(cursor):
    """After what is there; nobody is named when nobody was."""
    waiting = make_job(errors=[{"kind": "error"}])
    nameless = make_job()
    running = make_leased_job("a")
    before = running.enqueued_at

    cancel(cursor, [waiting.pk, running.pk], by="anna")
    cancel(cursor, [nameless.pk])

    first, note = ArchivedJob.objects.get(pk=waiting.pk).errors
    assert ("error", "cancelled", "anna") == (first["kind"], note["kind"], note["by"])
    assert before.isoformat() < note["at"]
    (request,) = Job.objects.get(pk=running.pk).errors
    assert ("cancel_requested", "anna") == (request["kind"], request["by"])
    assert "by" not in ArchivedJob.objects.get(pk=nameless.pk).errors[0]


# What is locked -----------------------------------------------------------------------


def test_a_locked_row_is_asked_for_again_and_then_passed_over(cursor, other_cursor):
    """It is never waited for, so cancels cannot deadlock with settles."""
    held, free = make_job(), make_job()
    slept = []

    with other_cursor.connection.transaction():
        other_cursor.execute(
            "SELECT 1 FROM pgqueue_job WHERE id = %s FOR UPDATE", [held.pk]
        )
        answer = cancel(cursor, [held.pk, free.pk], sleep=slept.append)

    assert ([free.pk], [], [held.pk]) == summary(answer)
    assert list(ASK_AGAIN_SECONDS) == slept


def test_a_job_that_is_being_claimed_is_asked_to_stop(cursor, other_cursor):
    """The claim's transaction ends while cancel asks again, and it then runs."""
    job = make_job()
    other_cursor.execute("BEGIN")
    claim_one(other_cursor)

    answer = cancel(
        cursor, [job.pk], sleep=lambda _seconds: other_cursor.execute("COMMIT")
    )

    assert ([], [job.pk], []) == summary(answer)
    assert "a" == Job.objects.get(pk=job.pk).leased_by


# A request, from the worker's side ----------------------------------------------------


def test_a_worker_is_told_which_of_its_leases_are_to_stop(cursor):
    """Those of others, and other deliveries, are none of its business."""
    mine, other, untouched = (
        make_leased_job("a"),
        make_leased_job("b"),
        make_leased_job("a"),
    )
    cancel(cursor, [mine.pk, other.pk])
    held = [(mine.pk, 1), (other.pk, 1), (untouched.pk, 1)]

    assert {mine.pk} == cancel_requests(cursor, worker="a", leases=held)
    assert set() == cancel_requests(cursor, worker="a", leases=[(mine.pk, 2)])
    assert set() == cancel_requests(cursor, worker="a", leases=[])


def test_a_claim_tells_of_a_request(cursor):
    """A job that lapsed with one is not to run again; its neighbours are."""
    job = make_leased_job("a", visible_at=-SECOND, cancel_requested_at=-SECOND)
    neighbour = make_job()

    claimed = claim(cursor, queues=["default"], worker="b", limit=2, lease=LEASE)

    assert {job.pk: True, neighbour.pk: False} == {
        row.id: row.cancel_requested for row in claimed
    }
