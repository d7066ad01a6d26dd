"""Depth: a count that goes no further than it must, and is there for others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from django_pgqueue.models import Queue
from django_pgqueue.postgres.limits import Plans, limit
from django_pgqueue.queues import depth
from tests.harness.factories import make_job, make_jobs, make_leased_job
from tests.scale.plans import explain, nodes

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


@pytest.mark.usefixtures("unanalysed")
def test_a_count_reads_the_entries_that_it_counts_and_no_table(new_cursor):
    """Of 3,000 jobs 51, in the order of the index; before anybody has analysed it."""
    make_jobs(3_000, queue="mail")
    cursor = new_cursor()
    params = {"queues": ["mail"], "rows": [51]}
    with cursor.connection.transaction():
        limit(cursor, seconds=5, plans=Plans.IN_ORDER)
        plan = explain(cursor, depth.COUNT, params)

    (scan,) = [node for node in nodes(plan) if node.get("Alias") == "j"]
    assert ("pgqueue_job_claim", 51) == (scan["Index Name"], scan["Actual Rows"])
    assert not any("Sort" in node["Node Type"] for node in nodes(plan))


def test_what_was_counted_is_read_while_it_is_fresh(cursor):
    """Neither of a queue without a count, nor of one whose count is old."""
    Queue.objects.create(name="new", depth=5, depth_at=ago(3))
    Queue.objects.create(name="old", depth=5, depth_at=ago(12))
    Queue.objects.create(name="never")

    found = depth.read(cursor, ["new", "old", "never", "unknown"])

    assert ["new"] == list(found)
    assert 5 == found["new"].jobs
    assert 3 <= found["new"].age_seconds < 10


def test_a_count_of_the_future_is_old_too(cursor):
    """The clock was set back since."""
    Queue.objects.create(name="mail", depth=5, depth_at=ago(-60))
    Queue.objects.create(name="sms", depth=5, depth_at=ago(-2))

    assert {"sms": (5, 0.0)} == depth.read(cursor, ["mail", "sms"])


def test_a_count_is_noted_in_the_rows_of_queues(cursor):
    """With its time; a queue that has no row gets none."""
    Queue.objects.create(name="mail", depth=1, depth_at=ago(60))
    make_jobs(4, queue="mail")
    make_jobs(4, queue="sms")

    depth.note(cursor, {"mail": 2, "sms": 2})

    mail = Queue.objects.get()
    assert 3 == mail.depth
    assert mail.depth_at > ago(30)


def test_a_queue_that_somebody_has_locked_is_left_out(cursor, new_cursor):
    """The leader has other chores, and an operator's transaction may be long."""
    Queue.objects.create(name="mail")
    Queue.objects.create(name="sms")
    operator = new_cursor()
    with operator.connection.transaction():
        operator.execute("UPDATE pgqueue_queue SET paused_by = 'x' WHERE name = 'mail'")
        depth.note(cursor, {"mail": 2, "sms": 2})

    assert [("mail", None), ("sms", 0)] == [
        *Queue.objects.order_by("name").values_list("name", "depth")
    ]


def test_the_latest_is_what_was_noted_or_is_counted_now(cursor):
    """Never more than one above the limit, which may have been another one."""
    Queue.objects.create(name="mail", depth=90, depth_at=ago(1))
    Queue.objects.create(name="sms", depth=90, depth_at=ago(60))
    make_jobs(3, queue="sms")

    assert {"mail": 11, "sms": 3} == depth.latest(cursor, {"mail": 10, "sms": 10})
    assert {} == depth.latest(cursor, {})


@pytest.mark.parametrize(
    "took, pause", [(0.0, 1.0), (0.05, 1.0), (0.3, 3.0), (2.0, 8.0)]
)
def test_counts_take_a_tenth_of_the_time_at_most(took, pause):
    """But they are never so far apart that those who enqueue count themselves."""
    assert pause == pytest.approx(depth.pause_after(took))
    assert pause + depth.COUNT_SECONDS_MAX <= depth.FRESH_SECONDS
