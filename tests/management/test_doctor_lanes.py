"""What the doctor says of lanes."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from django_pgqueue.findings import lanes
from django_pgqueue.models import Job, Lane, Worker
from django_pgqueue.queues import breakers, lane_controls
from django_pgqueue.queues.lanes import promote
from tests.harness.factories import make_job, make_jobs
from tests.management.test_doctor import database, examined, make_worker, trouble

__all__ = ["database"]  # A fixture.


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Nobody lets jobs through meanwhile."""
    monkeypatch.setattr(lanes, "AGAIN_SECONDS", 0.0)


def due_for(job, seconds):
    """Let a parked job have been due for so long."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgqueue_job SET lane_due_at = now() - make_interval(secs => %s)"
            " WHERE id = %s",
            [seconds, job],
        )


def let_through(name):
    with connection.cursor() as cursor:
        promote(cursor, [name])


def sane(check):
    """Whether there is nothing to be said."""
    return "ok" == examined()[1][check]["severity"]


# Held --------------------------------------------------------------------------------


def test_due_jobs_that_nobody_lets_through():
    """The lane has had room for a minute; the one that has waited longest is told."""
    first, *_ = make_jobs(3, lane="g")
    due_for(first, 90)
    due_for(make_job(lane="h", lane_capacity=5).pk, 60)

    finding = trouble("lanes_held")
    assert ("error", 2) == (finding["severity"], finding["value"])
    assert finding["what"] == (
        f"Lane g has room, and does not let job {first} through, which has been due "
        f"for 1 min 30 s, and so does 1 more lane."
    )
    assert "No worker lives" in finding["way_out"]

    make_worker()
    assert "No worker leads" in trouble("lanes_held")["way_out"]

    Worker.objects.update(leader_until=timezone.now() + timedelta(hours=1))
    assert "worker that leads" in trouble("lanes_held")["way_out"]


# Paused ------------------------------------------------------------------------------


def pause_for(lane, hours, **why):
    with connection.cursor() as cursor:
        lane_controls.pause(cursor, lane, **why)
    Lane.objects.filter(name=lane).update(
        paused_at=timezone.now() - timedelta(hours=hours)
    )


def test_a_pause_that_somebody_may_have_forgotten():
    """The longest is told, with who and why, and what ends it."""
    pause_for("shop.sync:it's", 50, by="ada", reason="key expired")
    pause_for("shop.sync:4", 30)
    pause_for("shop.sync:5", 20)

    finding = trouble("lanes_paused")
    assert ("warning", 2) == (finding["severity"], finding["value"])
    assert finding["what"] == (
        "Lane shop.sync:it's has been paused for 2 d 2 h by ada: key expired. And 1 "
        "more."
    )
    assert """lanes resume 'shop.sync:it'"'"'s'""" in finding["way_out"]


# Blocked -----------------------------------------------------------------------------


def make_failing(lane, minutes, **columns):
    """Insert a group whose first fails since so many minutes."""
    first, _ = make_jobs(2, lane=lane)
    let_through(lane)
    at = timezone.now() - timedelta(minutes=minutes)
    errors = [
        {"type": "shop.First", "at": at.isoformat()},
        {"type": "shop.Unlucky", "at": timezone.now().isoformat()},
    ]
    values = {"attempt": 2, "deliveries": 2, "errors": errors, **columns}
    Job.objects.filter(pk=first).update(**values)
    return first


def test_a_group_that_waits_for_a_job_that_fails():
    """With the job, its attempts and its last error; the longest is told."""
    job = make_failing("g", 12)
    make_failing("h", 10)
    make_worker()

    finding = trouble("lanes_blocked")
    assert ("warning", 2) == (finding["severity"], finding["value"])
    assert finding["what"] == (
        f"Group g has waited 12 min for job {job}, which fails again and again: "
        f"attempt 2 of 5, Unlucky. And 1 more group waits for such a job."
    )
    assert f"pgqueue show {job}" in finding["way_out"]
    assert f"pgqueue cancel {job}" in finding["way_out"]


# Breakers ----------------------------------------------------------------------------


def test_a_breaker_that_is_open_is_told():
    """With what it says, and how it is closed; it is no forgotten pause."""
    with connection.cursor() as cursor:
        half_minute = timedelta(seconds=30)
        breakers.open_breaker(
            cursor, "shop.sync", cooldown=half_minute, reason="9 of 9 attempts failed"
        )
    Lane.objects.update(paused_at=timezone.now() - timedelta(days=2))

    finding = trouble("breakers_open")
    assert ("warning", 1) == (finding["severity"], finding["value"])
    assert finding["what"].startswith(
        "The circuit breaker of task shop.sync opened 2 d ago, number 1 in a row, and "
        "tries one in "
    )
    assert finding["what"].endswith(": 9 of 9 attempts failed.")
    assert "manage.py pgqueue resume --task shop.sync" in finding["way_out"]
    assert sane("lanes_paused")
