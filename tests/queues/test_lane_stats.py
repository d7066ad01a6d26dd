"""What waits in lanes, and for what."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from django_pgqueue.models import Lane
from django_pgqueue.models.columns import CLOCK
from django_pgqueue.queues import lane_stats as stats
from django_pgqueue.queues.lanes import promote
from tests.harness.factories import make_jobs

pytestmark = pytest.mark.django_db(transaction=True)

LATER = timedelta(hours=1)


def make_waiting(count, lane, capacity=None, **columns):
    """Insert jobs of *lane*, which the trigger parks; return their ids."""
    return make_jobs(count, lane=lane, lane_capacity=capacity, **columns)


def let_through(cursor, *lanes):
    """Let through what there is room for."""
    return promote(cursor, lanes).jobs


def run_one(cursor, job, minutes=4):
    """Give a job that was let through to a worker, some minutes ago."""
    cursor.execute(
        "UPDATE pgqueue_job SET leased_by = 'w', attempt = 1, deliveries = 1,"
        " visible_at = now() + interval '1 minute',"
        " leased_at = now() - make_interval(mins => %s) WHERE id = %s",
        [minutes, job],
    )


def only(cursor, *lanes):
    (lane,) = stats.lane_stats(cursor, lanes)
    return lane


def test_a_rate_says_when_the_next_one_goes(cursor):
    """By its bucket, and by what was let through and not claimed."""
    make_waiting(3, "api", 100_000, lane_spacing=60.0, lane_burst=2)
    fresh = only(cursor, "api")
    assert (60.0, 0.0, True) == (fresh.spacing, fresh.turn_seconds, fresh.has_room)
    assert 2 == let_through(cursor, "api")

    lane = only(cursor, "api")
    assert 20 < lane.turn_seconds <= 60
    assert (2, 1, True, False) == (
        lane.let_through, lane.waiting, lane.is_rate, lane.has_room
    )  # fmt: skip
    cursor.execute("UPDATE pgqueue_lane SET full_at = now() - interval '1 h'")
    assert 60 == only(cursor, "api").turn_seconds
    cursor.execute("UPDATE pgqueue_lane SET unclaimed = 0")
    assert only(cursor, "api").has_room


def test_a_group_says_who_runs_and_who_waits(cursor):
    """Its first runs, and the others wait for it."""
    first, *_ = make_waiting(3, "customer:17")
    let_through(cursor, "customer:17")
    run_one(cursor, first)

    lane = only(cursor, "customer:17")
    assert (None, 2, 1, 1) == (
        lane.capacity,
        lane.waiting,
        lane.let_through,
        lane.running,
    )
    assert not lane.has_room
    assert (first, "running") == (lane.head.id, lane.head.state)
    assert 240 <= lane.head.seconds < 300
    assert lane.due_seconds >= 0


def test_a_lane_of_a_paused_task_says_so(cursor):
    """Of its own lane it is the pause of that; half-open, too."""
    make_jobs(1, task="shop.sync", lane="shop.sync:1", lane_capacity=5)
    make_jobs(1, task="shop.sync", lane="shop.sync", lane_capacity=5)
    names = ["shop.sync:1", "shop.sync"]
    Lane.objects.create(
        name="shop.sync",
        paused_at=CLOCK,
        paused_until=CLOCK - LATER,
        paused_by="breaker",
        breaker_trips=2,
    )

    of_key, of_task = stats.lane_stats(cursor, names)
    assert ("shop.sync", "breaker", 2) == (
        of_key.task_pause.task,
        of_key.task_pause.paused_by,
        of_key.task_pause.breaker_trips,
    )
    assert (False, False) == (of_key.is_paused, of_key.has_room)
    assert of_key.task_pause.seconds < 0
    assert (True, 2, None) == (
        of_task.is_paused,
        of_task.breaker_trips,
        of_task.task_pause,
    )

    Lane.objects.update(breaker_trips=0)
    assert [True, True] == [lane.has_room for lane in stats.lane_stats(cursor, names)]


def test_lanes_are_found_by_name_a_page_at_a_time(cursor):
    """Each once, however many jobs it has."""
    for name in ("b", "a", "c"):
        make_waiting(2, name)

    first = stats.find_lanes(cursor, limit=2, looks=10)
    assert (["a", "b"], "b", False) == (first.lanes, first.after, first.is_cut)
    second = stats.find_lanes(cursor, after="b", limit=2, looks=10)
    assert (["c"], None, False) == (second.lanes, second.after, second.is_cut)


def test_groups_that_wait_for_a_failing_job(cursor):
    """Not one whose first has not failed, no limit, and whatever errors hold."""
    error = {"type": "shop.Unlucky", "at": "2026-01-01T00:00:00+00:00"}
    for name, capacity, errors in (
        ("failing", None, [error, error]),
        ("fresh", None, []),
        ("limit", 2, [error]),
        ("odd", None, [1]),
    ):
        first, *_ = make_waiting(4, name, capacity)
        let_through(cursor, name)
        cursor.execute(
            "UPDATE pgqueue_job SET attempt = 2, deliveries = 2, errors = %s"
            " WHERE id = %s",
            [json.dumps(errors), first],
        )

    names = ["failing", "fresh", "limit", "odd"]
    found = {head.lane: head for head in stats.failing_heads(cursor, names)}
    assert {"failing", "odd"} == set(found)
    assert ("shop.Unlucky", error["at"], 2) == (
        found["failing"].error,
        found["failing"].first_at,
        found["failing"].attempt,
    )
    assert (None, None) == (found["odd"].error, found["odd"].first_at)
