"""Depth: a count that goes no further than it must, and is there for others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django_pgqueue.models import Queue
from django_pgqueue.queues import depth
from tests.harness.factories import make_job, make_jobs, make_leased_job

HOUR = timedelta(hours=1)


def ago(seconds):
    return datetime.now(UTC) - timedelta(seconds=seconds)


def test_every_live_job_counts(cursor):
    """Whatever its state and its priority; none of another queue."""
    make_job(queue="mail")
    make_job(queue="mail", visible_at=HOUR, priority=7)
    make_job(queue="mail", visible_at=None, lane="x")
    make_leased_job("w", queue="mail", priority=-3)
    make_job(queue="other")

    assert {"mail": 4, "empty": 0} == depth.count(cursor, {"mail": 9, "empty": 9})


def test_it_counts_to_one_more_than_the_limit(cursor):
    """So that what is full and what holds more are told apart."""
    make_jobs(7, queue="mail")
    make_jobs(7, queue="sms")

    assert {"mail": 4, "sms": 7} == depth.count(cursor, {"mail": 3, "sms": 7})


def test_what_was_counted_is_read_while_it_is_fresh(cursor):
    """Neither of a queue without a count, nor of one whose count is old."""
    Queue.objects.create(name="new", depth=5, depth_at=ago(3))
    Queue.objects.create(name="old", depth=5, depth_at=ago(12))
    Queue.objects.create(name="never")

    found = depth.read(cursor, ["new", "old", "never", "unknown"])

    assert ["new"] == list(found)
    assert 5 == found["new"].jobs
    assert 3 <= found["new"].age_seconds < 10


def test_a_count_is_noted_in_the_rows_of_queues(cursor):
    """With its time; a queue that has no row gets none."""
    Queue.objects.create(name="mail", depth=1, depth_at=ago(60))
    make_jobs(4, queue="mail")
    make_jobs(4, queue="sms")

    depth.note(cursor, {"mail": 2, "sms": 2})

    mail = Queue.objects.get()
    assert 3 == mail.depth
    assert mail.depth_at > ago(30)
