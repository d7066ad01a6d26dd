"""The values that jobs emit, in their table."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from django_pgqueue.models import Job, Output
from django_pgqueue.queues import output
from django_pgqueue.queues.output import Said
from django_pgqueue.queues.purge import batch
from tests.harness.factories import make_archived_job, make_leased_job
from tests.harness.waiting import wait_until_blocked

pytestmark = pytest.mark.django_db(transaction=True)

DAY = timedelta(days=1)
OLD = "2026-01-01T00:00Z"


def stored(job):
    rows = Output.objects.filter(job_id=job).order_by("sequence")
    return [(row.sequence, row.value) for row in rows]


def test_values_are_numbered_by_their_delivery(cursor):
    """So that they can be sorted, and one that is written again is there once."""
    job = make_leased_job(deliveries=3).id
    said = [Said(job, 3, 1, '"a"'), Said(job, 3, 2, "2")]

    assert {(job, 3)} == output.append(cursor, said, worker="worker")
    assert {(job, 3)} == output.append(cursor, said, worker="worker")

    assert [(3_000_001, "a"), (3_000_002, 2)] == stored(job)
    assert [2] == [row.sequence % 10 for row in output.read(cursor, job, after=3000001)]


@pytest.mark.parametrize("of", [{"worker": "another"}, {"delivery": 2}, {"gone": True}])
@pytest.mark.parametrize("is_last", [False, True])
def test_a_worker_that_has_lost_the_job_appends_nothing(cursor, of, is_last):
    """What it still holds is written, though it comes by the same statement."""
    job = make_archived_job().id if "gone" in of else make_leased_job(deliveries=1).id
    said = [Said(job, of.get("delivery", 1), 1, "1")]
    held = make_leased_job("another" if "worker" in of else "worker").id
    if "worker" in of:
        Job.objects.filter(pk=held).update(leased_by="another")
    said.append(Said(held, 1, 1, "1"))

    written = output.append(
        cursor, said, worker=of.get("worker", "worker"), is_last=is_last
    )

    assert {(held, 1)} == written
    assert [] == stored(job)
    assert [(1_000_001, 1)] == stored(held)


def test_a_claim_that_is_not_committed_yet_fences_as_well(cursor, other_cursor):
    """Who does not wait for it is refused; who does finds that the job is lost."""
    job = make_leased_job().id
    said = [Said(job, 1, 1, "1")]
    written = []

    with other_cursor.connection.transaction():
        other_cursor.execute(
            "UPDATE pgqueue_job SET deliveries = 2, leased_by = 'b' WHERE id = %s",
            [job],
        )
        other_cursor.execute(
            "SELECT 1 FROM pgqueue_job WHERE id = %s FOR UPDATE", [job]
        )
        assert set() == output.append(cursor, said, worker="worker")

        last = threading.Thread(
            target=lambda: written.append(
                output.append(cursor, said, worker="worker", is_last=True)
            )
        )
        last.start()
        wait_until_blocked(other_cursor, cursor)
    last.join(20)

    assert [set()] == written
    assert [] == stored(job)


def test_values_go_when_they_are_old_and_their_job_is_over(cursor):
    """Those of a job in the queue stay, however old; and fresh ones do."""
    live, over, fresh = make_leased_job().id, make_leased_job().id, make_leased_job().id
    for job in (live, over, fresh):
        output.append(cursor, [Said(job, 1, 1, "1")], worker="worker")
    Output.objects.exclude(job_id=fresh).update(emitted_at=OLD)
    Job.objects.exclude(pk=live).delete()

    purged = batch(cursor, output.PURGE, DAY)

    assert (1, 2, False) == (purged.rows, purged.looked, purged.is_full)
    assert {live, fresh} == set(Output.objects.values_list("job_id", flat=True))
