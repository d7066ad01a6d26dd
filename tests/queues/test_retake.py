"""Going back to the queue: a job takes its key again, or ends where it is taken."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from django_pgqueue.models import ArchivedJob, Job
from django_pgqueue.queues.claim import claim
from django_pgqueue.queues.lease import release, rescue
from django_pgqueue.queues.settle import Ended, retry
from tests.harness.factories import LEASE, make_job, make_leased_job
from tests.harness.waiting import wait_for

TAKEN = """
INSERT INTO pgqueue_job (task, dedup_key) VALUES ('tests.noop', 'k') RETURNING id
"""


def running(**columns):
    """Make a job that has its key while it waits, and runs."""
    return make_leased_job(**{"queued_key": "k", **columns})


def failed(job, **fields):
    """Return the end of a failed attempt."""
    entry = '{"kind": "error", "message": "bad luck"}'
    fields = {"ran_seconds": 1.0, "error": entry, **fields}
    return Ended(job.pk, job.deliveries, **fields)


def back(cursor, *ended):
    """Put jobs back after their attempts; return what supersedes which."""
    settled = retry(cursor, worker="worker", ended=ended)
    assert {item.id for item in ended} == settled
    return {item.id: item.superseded_by for item in ended}


def keys():
    """Return the dedup key of each live job."""
    return dict(Job.objects.values_list("pk", "dedup_key"))


def test_a_retry_takes_its_key_again(cursor):
    """While it waits for its next attempt it keeps others out, as before."""
    job = running()

    assert {job.pk: None} == back(cursor, failed(job))
    assert {job.pk: "k"} == keys()


def test_a_retry_that_meets_a_twin_ends_visibly(cursor):
    """Cancelled, with its errors, its key, and the id of the job that goes on."""
    job, twin = running(), make_job(dedup_key="k", queued_key="k")

    assert {job.pk: twin.pk} == back(cursor, failed(job))
    assert {twin.pk: "k"} == keys()
    row = ArchivedJob.objects.get()
    assert (job.pk, "cancelled", "k") == (row.pk, row.state, row.dedup_key)
    assert ["error", "superseded"] == [entry["kind"] for entry in row.errors]
    assert twin.pk == row.errors[-1]["holder"]
    assert str(twin.pk) in row.errors[-1]["message"]


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"error": None, "ran_seconds": None}, id="held"),
        pytest.param({}, id="interrupted"),
    ],
)
def test_a_job_that_did_not_really_run_goes_on_without_its_key(cursor, fields):
    """Held, since its task is unknown; or interrupted by the worker's stop."""
    job, twin = running(), make_job(dedup_key="k")

    ended = failed(job, gives_attempt_back=True, **fields)

    assert {job.pk: None} == back(cursor, ended)
    assert {job.pk: None, twin.pk: "k"} == keys()


def released(cursor, job):
    return release(
        cursor, worker="worker", leases=[(job.pk, job.deliveries, job.enqueued_at)]
    )


def rescued(cursor, job):
    return rescue(
        cursor,
        worker="worker",
        running=[(job.pk, job.deliveries)],
        lease=LEASE,
        message="gone",
    )


@pytest.mark.parametrize("give_back", [released, rescued])
@pytest.mark.parametrize("is_taken", [False, True])
def test_a_job_that_is_handed_back_takes_its_key_if_it_is_free(
    cursor, give_back, is_taken
):
    """Else it goes on without: it is no failure that nobody has settled it."""
    job = running()
    if is_taken:
        cursor.execute(TAKEN)

    assert give_back(cursor, job)
    assert (None if is_taken else "k") == keys()[job.pk]
    assert None is Job.objects.get(pk=job.pk).leased_by


def test_a_lapsed_lease_is_claimed_without_its_key(cursor):
    """Its worker is gone, so nobody put it back; the twin's claim does not fail."""
    job = running(visible_at=-LEASE)
    cursor.execute(TAKEN)

    claimed = claim(cursor, queues=["default"], worker="b", limit=9, lease=LEASE)

    assert 2 == len(claimed)
    assert job.pk in {one.id for one in claimed}


@pytest.fixture
def in_thread():
    """Run a function in a thread; the answer is a future."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit


# Longer than a batch waits that holds other keys.
WAITS_PATIENTLY = """
SELECT count(*) FROM pg_locks
 WHERE pid = %s AND NOT granted
   AND waitstart < clock_timestamp() - interval '100 milliseconds'
"""


def wait_until_patient(look, waiting):
    """Return once *waiting* waits for one key alone."""
    pid = waiting.connection.info.backend_pid
    wait_for(
        lambda: look.execute(WAITS_PATIENTLY, [pid]).fetchone()[0],
        what="the retake waits for one key",
    )


def test_a_retry_waits_for_an_enqueue_that_has_not_committed(
    cursor, other_cursor, new_cursor, in_thread
):
    """Only then it is known whether there is a twin."""
    job = running()
    with other_cursor.connection.transaction():
        (twin,) = other_cursor.execute(TAKEN).fetchone()
        ends = in_thread(back, cursor, failed(job))
        wait_until_patient(new_cursor(), cursor)

    assert {job.pk: twin} == ends.result(10)


def test_a_settle_does_not_wait_for_long(cursor, other_cursor):
    """Behind a transaction that stays open, jobs go on without their keys."""
    jobs = [running(queued_key=key) for key in ("k", "k", "free")]
    with other_cursor.connection.transaction(force_rollback=True):
        other_cursor.execute(TAKEN)
        cursor.execute("SET statement_timeout = '5s'")
        told = back(cursor, *map(failed, jobs))

    assert {None} == {*told.values()}
    assert [None, None, "free"] == [keys()[job.pk] for job in jobs]
