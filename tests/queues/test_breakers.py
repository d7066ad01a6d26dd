"""Breakers: who opens one, who closes it, and that an operator comes first."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from django_pgqueue.models import Lane
from django_pgqueue.models.columns import CLOCK
from django_pgqueue.queues import breakers, lanes
from django_pgqueue.queues import lane_controls as controls
from tests.harness.factories import make_jobs

TASK = "shop.call"
HALF_MINUTE = timedelta(seconds=30)
SECOND = timedelta(seconds=1)


def open_it(cursor, cooldown=HALF_MINUTE, reason="20 of 20 attempts failed"):
    with cursor.connection.transaction():
        return breakers.open_breaker(cursor, TASK, cooldown=cooldown, reason=reason)


def fail(cursor, probe, reason="the probe failed"):
    with cursor.connection.transaction():
        return breakers.open_again(
            cursor, TASK, probe, cooldown=HALF_MINUTE, reason=reason
        )


def close(cursor, probe):
    with cursor.connection.transaction():
        return breakers.close(cursor, TASK, probe)


def cool_down():
    """Let the cool-down be over."""
    Lane.objects.filter(name=TASK).update(paused_until=CLOCK - SECOND)


@pytest.fixture
def probe(cursor):
    """The job that tries whether an open breaker may close; another one waits."""
    first, _ = make_jobs(2, task=TASK, lane=TASK, lane_capacity=100)
    open_it(cursor)
    cool_down()
    lanes.promote(cursor, [TASK])
    return first


def test_an_open_breaker_pauses_the_lane_of_its_task(cursor):
    """For the cool-down, and it says why."""
    opened = open_it(cursor)

    assert (1, 30.0) == (opened.trips, opened.seconds)
    lane = Lane.objects.get()
    assert HALF_MINUTE == lane.paused_until - lane.paused_at
    assert (TASK, "breaker", 1) == (lane.name, lane.paused_by, lane.breaker_trips)
    assert "20 of 20 attempts failed" == lane.pause_reason


def test_processes_that_open_it_at_once_trip_it_once(new_cursor):
    """The second finds it open."""
    cursors = [new_cursor() for _ in range(4)]
    start = threading.Barrier(len(cursors), timeout=30)

    def trip(cursor):
        start.wait()
        return open_it(cursor)

    for _ in range(20):
        with ThreadPoolExecutor(len(cursors)) as pool:
            opened = [each for each in pool.map(trip, cursors) if each is not None]
        assert [1] == [each.trips for each in opened]
        assert 1 == Lane.objects.get().breaker_trips
        Lane.objects.all().delete()


def test_a_probe_that_succeeds_closes_it(cursor, probe):
    """Then its row is gone, and everything is let through."""
    make_jobs(5, task=TASK, lane=TASK, lane_capacity=100)

    assert close(cursor, probe)
    assert not Lane.objects.exists()
    assert 6 == lanes.promote(cursor, [TASK]).jobs


def test_a_probe_that_fails_opens_it_for_twice_as_long(cursor, probe):
    """Each time, up to 32 times the first."""
    seconds = []
    for trips in range(2, 9):
        opened = fail(cursor, probe)
        assert trips == opened.trips
        seconds.append(opened.seconds)
        Lane.objects.update(probe_id=probe)
        cool_down()

    assert [60, 120, 240, 480, 960, 960, 960] == seconds
    assert "the probe failed" == Lane.objects.get().pause_reason


def test_only_the_probe_decides(cursor, probe):
    """Jobs that ran when it opened say nothing, whatever became of them."""
    assert fail(cursor, probe + 1) is None
    assert not close(cursor, probe + 1)
    assert probe == Lane.objects.get().probe_id


def test_a_breaker_never_overrides_an_operator(cursor):
    """His pause stays as he said it; one that has ended is none."""
    controls.pause(cursor, TASK, by="ada", reason="maintenance")
    assert open_it(cursor) is None
    assert "ada" == Lane.objects.get().paused_by

    Lane.objects.update(paused_until=CLOCK - SECOND)
    assert open_it(cursor) is not None


def test_an_operator_pauses_what_a_breaker_has_opened(cursor, probe):
    """From then on it ends when he says so, and no probe decides."""
    assert controls.pause(cursor, TASK, by="ada")

    lane = Lane.objects.get()
    assert ("ada", None, 0, None) == (
        lane.paused_by,
        lane.paused_until,
        lane.breaker_trips,
        lane.probe_id,
    )
    assert not close(cursor, probe)
    assert fail(cursor, probe) is None
    assert not controls.pause(cursor, TASK, by="bob")
