"""Lanes: what is let through, and when."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest

from django_pgqueue.models import Job
from django_pgqueue.queues import lanes
from django_pgqueue.queues.settle import Ended, retry
from tests.harness.factories import make_job, make_jobs

HOUR = timedelta(hours=1)


def visible(lane="a"):
    """Return the jobs of a lane that were let through, the first first."""
    rows = Job.objects.filter(lane=lane, visible_at__isnull=False)
    return [*rows.order_by("visible_at", "pk").values_list("pk", flat=True)]


def end(job_id):
    Job.objects.filter(pk=job_id).delete()


# Groups ------------------------------------------------------------------------------


def test_a_group_lets_one_job_through_in_the_order_of_ids(cursor):
    """The next one when that one is gone, and not before."""
    first, second = make_jobs(2, lane="a")

    assert (1, ["default"], []) == lanes.promote(cursor, ["a"])[:3]
    assert (0, [], []) == lanes.promote(cursor, ["a"])[:3]
    assert [first] == visible()

    end(first)
    assert 1 == lanes.promote(cursor, ["a"]).jobs
    assert [second] == visible()


def test_a_job_that_is_not_due_holds_up_its_group(cursor):
    """Order comes first; the others go on when its time has come."""
    first = make_job(lane="a", run_after=HOUR)
    make_job(lane="a")

    assert 0 == lanes.promote(cursor, ["a"]).jobs

    Job.objects.filter(pk=first.pk).update(lane_due_at=first.enqueued_at)
    assert 1 == lanes.promote(cursor, ["a"]).jobs
    assert [first.pk] == visible()


def test_a_retry_keeps_its_place_in_a_group(cursor):
    """Nobody overtakes a job that waits for its next attempt."""
    job = make_job(lane="a")
    lanes.promote(cursor, ["a"])
    Job.objects.update(leased_by="w", attempt=1, deliveries=1)
    make_job(lane="a")

    again = Ended(id=job.pk, delivery=1, delay_seconds=60)
    assert {job.pk} == retry(cursor, worker="w", ended=[again])
    assert 0 == lanes.promote(cursor, ["a"]).jobs
    assert [job.pk] == visible()


@pytest.mark.parametrize(
    "said", [{}, {"lane_spacing": 0.000001, "lane_burst": 100_000}]
)
def test_a_group_that_skips_goes_on_without_one_that_failed(cursor, said):
    """And when its next attempt is due, it is the first again; with a rate, too."""
    failed, second, third = make_jobs(3, lane="a", lane_policy="skip", **said)
    lanes.promote(cursor, ["a"])
    Job.objects.filter(pk=failed).update(leased_by="w", attempt=1, deliveries=1)

    again = Ended(id=failed, delivery=1, delay_seconds=60)
    assert {failed} == retry(cursor, worker="w", ended=[again])
    assert 1 == lanes.promote(cursor, ["a"]).jobs
    assert [second] == visible()

    due = Job.objects.get(pk=third).lane_due_at
    Job.objects.filter(pk=failed).update(lane_due_at=due)
    assert 0 == lanes.promote(cursor, ["a"]).jobs
    end(second)
    assert 1 == lanes.promote(cursor, ["a"]).jobs
    assert [failed] == visible()


# Limits ------------------------------------------------------------------------------


def test_a_limit_lets_so_many_through(cursor):
    """Those that were due first, and as many again as are gone."""
    ids = make_jobs(5, lane="a", lane_capacity=3)

    assert 3 == lanes.promote(cursor, ["a"]).jobs
    assert 0 == lanes.promote(cursor, ["a"]).jobs
    assert set(ids[:3]) == set(visible())

    end(ids[0])
    end(ids[1])
    assert 2 == lanes.promote(cursor, ["a"]).jobs
    assert set(ids[2:]) == set(visible())


def test_the_job_stored_last_says_how_many(cursor):
    """As when a new version of the code is rolled out."""
    make_jobs(3, lane="a", lane_capacity=1)
    make_jobs(3, lane="a", lane_capacity=4)

    assert 4 == lanes.promote(cursor, ["a"]).jobs


def test_a_retry_takes_no_place_of_a_limit(cursor):
    """It is parked until its next attempt, and others run meanwhile."""
    job = make_job(lane="a", lane_capacity=1)
    lanes.promote(cursor, ["a"])
    Job.objects.update(leased_by="w", attempt=1, deliveries=1)
    other = make_job(lane="a", lane_capacity=1)

    again = Ended(id=job.pk, delivery=1, delay_seconds=60)
    assert {job.pk} == retry(cursor, worker="w", ended=[again])
    job.refresh_from_db()
    assert job.visible_at is None
    assert job.lane_due_at is not None
    assert 1 == lanes.promote(cursor, ["a"]).jobs
    assert [other.pk] == visible()


# Promotion ---------------------------------------------------------------------------


def test_a_job_becomes_visible_at_the_moment_of_its_promotion(cursor, other_cursor):
    """Not when it was stored, nor before a wait for the lane's lock."""
    make_job(lane="a")
    begun = threading.Event()

    with other_cursor.connection.transaction():
        lanes.promote(other_cursor, ["a", "b"])
        make_job(lane="b")
        with ThreadPoolExecutor() as pool:

            def promote():
                begun.set()
                return lanes.promote(cursor, ["b"])

            waiting = pool.submit(promote)
            assert begun.wait(10)
            pid = cursor.connection.info.backend_pid
            blocked = "SELECT %s = ANY(pg_blocking_pids(%s))"
            ours = other_cursor.connection.info.backend_pid
            while not other_cursor.execute(blocked, [ours, pid]).fetchone()[0]:
                pass
            (late,) = other_cursor.execute("SELECT clock_timestamp()").fetchone()
            other_cursor.execute("COMMIT")
            assert 1 == waiting.result(10).jobs
            other_cursor.execute("BEGIN")
    assert late < Job.objects.get(lane="b").visible_at


def test_a_head_that_somebody_has_locked_is_waited_for(cursor, other_cursor):
    """Nobody overtakes it; the lane is told, and asked again."""
    first, _ = make_jobs(2, lane="a")
    with other_cursor.connection.transaction():
        other_cursor.execute(
            "SELECT FROM pgqueue_job WHERE id = %s FOR UPDATE", [first]
        )
        assert (0, [], ["a"]) == lanes.promote(cursor, ["a"])[:3]
    assert 1 == lanes.promote(cursor, ["a"]).jobs
    assert [first] == visible()


def test_a_stricter_isolation_is_refused(cursor):
    """It would count what it saw before it had the lock."""
    make_job(lane="a")
    cursor.execute("SET default_transaction_isolation = 'repeatable read'")

    with pytest.raises(psycopg.errors.ActiveSqlTransaction, match="READ COMMITTED"):
        lanes.promote(cursor, ["a"])


TOO_MANY = """
SELECT lane FROM pgqueue_job WHERE visible_at IS NOT NULL
 GROUP BY lane HAVING count(*) > %s
"""
TAKE = """
DELETE FROM pgqueue_job WHERE id = ANY(ARRAY(
    SELECT id FROM pgqueue_job WHERE visible_at IS NOT NULL
     ORDER BY random() LIMIT 2 FOR UPDATE SKIP LOCKED))
RETURNING id, lane, lane_capacity
"""
PUT_BACK = """
INSERT INTO pgqueue_job (id, task, lane, lane_capacity, run_after)
VALUES (%s, 'tests.noop', %s, %s, '2001-01-01')
"""


@pytest.mark.parametrize("capacity", [None, 3])
def test_promotions_at_once_never_let_too_many_through(new_cursor, capacity):
    """
    Also while jobs come back that were there before, as redriven ones do.

    Without the lock, one promotion would let through what was first before such a job
    came back, and another one that job.
    """
    most, names = capacity or 1, [f"lane-{n}" for n in range(4)]
    for name in names:
        make_jobs(20, lane=name, lane_capacity=capacity)
    cursors = [new_cursor() for _ in range(4)]
    start = threading.Barrier(len(cursors))

    def run(cursor):
        start.wait()
        beyond = []
        for _ in range(100):
            lanes.promote(cursor, names)
            beyond += cursor.execute(TOO_MANY, [most]).fetchall()
            for row in cursor.execute(TAKE).fetchall():
                cursor.execute(PUT_BACK, row)
        return beyond

    with ThreadPoolExecutor(len(cursors)) as pool:
        assert [[]] * len(cursors) == [*pool.map(run, cursors)]


# Which lanes -------------------------------------------------------------------------


def due(cursor, **options):
    return lanes.newly_due(cursor, **{"since": None, "back": HOUR, **options})


def test_lanes_with_new_jobs_are_found(cursor):
    """Those whose jobs have become due, and when the next one will."""
    make_jobs(2, lane="a")
    make_job(lane="b", run_after=2 * HOUR)
    make_job(lane="c", lane_capacity=5)
    make_job()

    found = due(cursor)
    assert ["a", "c"] == sorted(found.lanes)
    assert found.after is None
    assert found.next_seconds == pytest.approx(7_200, abs=60)
    assert [] == due(cursor, since=found.now, back=timedelta(0)).lanes
