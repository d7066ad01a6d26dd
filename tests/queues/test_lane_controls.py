"""What an operator says of a lane: pauses, capacities, weights, releases."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db.models.functions import Now

from django_pgqueue.models import Job, Lane
from django_pgqueue.postgres.limits import Plans, limit
from django_pgqueue.queues import lane_controls as controls
from django_pgqueue.queues import lanes
from django_pgqueue.queues.lane_stats import lane_stats
from tests.harness.factories import make_job, make_jobs
from tests.harness.waiting import wait_for, wait_until_blocked

HOUR = timedelta(hours=1)


def visible(lane="a"):
    """Return the jobs of a lane that were let through."""
    rows = Job.objects.filter(lane=lane, visible_at__isnull=False)
    return [*rows.order_by("pk").values_list("pk", flat=True)]


def let_through(cursor, lane="a"):
    return lanes.promote(cursor, [lane]).jobs


def release(cursor, lane="a"):
    with cursor.connection.transaction():
        limit(cursor, seconds=10, plans=Plans.IN_ORDER)
        return controls.release(cursor, lane)


def between_attempts(job, minutes=5):
    """Let a job have failed, which waits for its next attempt."""
    Job.objects.filter(pk=job).update(
        visible_at=Now() + timedelta(minutes=minutes), attempt=1, deliveries=1
    )


def run(job):
    """Let a worker run a job."""
    between_attempts(job)
    Job.objects.filter(pk=job).update(leased_by="w", leased_at=Now())


# Pauses ------------------------------------------------------------------------------


@pytest.mark.parametrize("capacity", [None, 3], ids=["group", "limit"])
def test_a_paused_lane_lets_nothing_through(cursor, capacity):
    """Neither is it looked at; when it is resumed, it goes on, and its row is gone."""
    make_jobs(2, lane="a", lane_capacity=capacity)

    assert controls.pause(cursor, "a", by="ada", reason="provider is down")
    assert 0 == let_through(cursor)
    assert [] == lanes.with_room(cursor).lanes

    assert controls.resume(cursor, "a")
    assert ["a"] == lanes.with_room(cursor).lanes
    assert 0 < let_through(cursor)
    assert not Lane.objects.exists()


def test_a_pause_ends_by_itself(cursor):
    """It is looked at again, lets jobs through, and may be paused anew."""
    make_jobs(2, lane="a")
    controls.pause(cursor, "a", by="ada", until=timedelta(microseconds=1))

    assert ["a"] == lanes.with_room(cursor).lanes
    assert 1 == let_through(cursor)
    (stats,) = lane_stats(cursor, ["a"])
    assert not stats.is_paused
    assert controls.pause(cursor, "a", by="bob", until=HOUR)
    assert "bob" == Lane.objects.get().paused_by


def test_nothing_is_let_through_once_a_pause_is_committed(cursor, other_cursor):
    """A promotion that comes while the pause is written waits, and then sees it."""
    make_jobs(2, lane="a")

    with ThreadPoolExecutor() as pool:
        with cursor.connection.transaction():
            controls.pause(cursor, "a")
            promotion = pool.submit(let_through, other_cursor)
            wait_for(lambda: waits(cursor), 10, "a promotion that waits")
        assert 0 == promotion.result(30)


def waits(cursor):
    """Return whether somebody waits for the lock of a lane."""
    cursor.execute("SELECT FROM pg_locks WHERE classid = 706706 AND NOT granted")
    return cursor.fetchone() is not None


# Capacities --------------------------------------------------------------------------


def test_an_operators_capacity_holds_in_place_of_the_jobs(cursor):
    """More are let through, or fewer; and without it, what the jobs say."""
    make_jobs(10, lane="a", lane_capacity=2)
    let_through(cursor)

    assert controls.set_capacity(cursor, "a", 5)
    assert not controls.set_capacity(cursor, "a", 5)
    assert 3 == let_through(cursor)
    assert controls.set_capacity(cursor, "a", 1)
    assert 0 == let_through(cursor)
    Job.objects.filter(pk__in=visible()[:4]).delete()
    assert 0 == let_through(cursor)
    assert controls.set_capacity(cursor, "a", None)
    assert not controls.set_capacity(cursor, "a", None)
    assert 1 == let_through(cursor)
    assert not Lane.objects.exists()


def test_a_capacity_meets_who_makes_the_row_of_its_lane(
    cursor, other_cursor, new_cursor
):
    """As a promotion of a rate does, of which no snapshot has shown anything."""
    other_cursor.execute("BEGIN")
    other_cursor.execute("INSERT INTO pgqueue_lane (name, spacing) VALUES ('a', 1)")
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(controls.set_capacity, cursor, "a", 5)
        wait_until_blocked(new_cursor(), cursor)
        other_cursor.execute("COMMIT")

    assert answer.result()
    assert 5 == Lane.objects.get().capacity


# Releases ----------------------------------------------------------------------------


def test_a_release_lets_one_more_through_than_a_limit_takes(cursor):
    """The one that has been due for longest; one time."""
    first, _, third, _ = make_jobs(4, lane="a", lane_capacity=1)
    cursor.execute(
        "UPDATE pgqueue_job SET lane_due_at = now() - interval '1 h' WHERE id = %s",
        [third],
    )
    cursor.execute(
        "UPDATE pgqueue_job SET lane_due_at = now() - interval '2 h' WHERE id = %s",
        [first],
    )
    let_through(cursor)
    assert [first] == visible()

    released = release(cursor)
    assert (third, "default", None) == released[:3]
    assert [first, third] == visible()
    assert 0 == let_through(cursor)


def test_a_group_goes_on_past_a_job_that_waits_for_its_next_attempt(cursor):
    """That one is parked until then; and is the first again when it is due."""
    first, second, third = make_jobs(3, lane="a")
    let_through(cursor)
    between_attempts(first)

    released = release(cursor)
    assert (second, "default", first) == released[:3]
    assert [second] == visible()

    Job.objects.filter(pk=second).delete()
    assert 1 == let_through(cursor)
    assert [third] == visible()
    Job.objects.filter(pk=third).delete()
    cursor.execute("UPDATE pgqueue_job SET lane_due_at = now() WHERE id = %s", [first])
    make_job(lane="a")
    assert 1 == let_through(cursor)
    assert [first] == visible()


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "ready"])
def test_a_group_never_has_two_by_a_release(cursor, is_running):
    """A job that runs, or may start any moment, is waited for."""
    first, second = make_jobs(2, lane="a")
    let_through(cursor)
    if is_running:
        run(first)

    assert (None, None, None, second) == release(cursor)
    assert [first] == visible()


def test_a_release_counts_what_a_promotion_has_let_through(cursor, other_cursor):
    """It waits for one that is open, and then a group has its job."""
    first, second = make_jobs(2, lane="a")

    with ThreadPoolExecutor() as pool:
        with cursor.connection.transaction():
            let_through(cursor)
            asked = pool.submit(release, other_cursor)
            wait_for(lambda: waits(cursor), 10, "a release that waits")
        assert (None, None, None, second) == asked.result(30)
    assert [first] == visible()
