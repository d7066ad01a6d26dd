"""Spread: jobs in a window, where the caller says or where chance does."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from django_pgqueue.models import Job
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.queues import rules as module
from django_pgqueue.queues.enqueue import Placement, enqueue, enqueue_many
from django_pgqueue.queues.enqueue_rows import Argument, KeyPart, enqueue_from_select

NOON = datetime(2050, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

WINDOW = Placement(
    queue="mail",
    task="shop.send",
    headers='{"trace": "t"}',
    priority=-7,
    max_attempts=3,
    run_at=NOON,
    expire_at=NOON + timedelta(days=1),
    over_microseconds=60_000_000,
)


def from_select(cursor, query, *params, key=(), placement=WINDOW):
    """Store a job for each row of a query of one column, a whole number."""
    return enqueue_from_select(
        cursor,
        placement,
        arguments=[Argument("n", "integer"), Argument("fixed", None, '"x"')],
        key=key,
        query=query,
        params=params,
        payload_bytes_max=1_000,
        with_ids=True,
    )


def test_jobs_are_stored_as_they_were_described(cursor):
    """By each statement; ids rise in the order of the items and rows."""
    one = replace(WINDOW, offset_microseconds=5)
    ids = [enqueue(cursor, one, args="[1]", kwargs='{"a": 2}')]
    ids += enqueue_many(
        cursor, WINDOW, [Items('[1],{"a":2}', 2, [7, 6]), Items("[3]", 1, [5])]
    )
    stored = from_select(cursor, "SELECT generate_series(1, %s)", 2)

    jobs = list(Job.objects.order_by("pk"))
    assert (2, [*ids, *stored.ids]) == (stored.count, [job.pk for job in jobs])
    for job in jobs:
        assert ("mail", "shop.send", -7, 3, {"trace": "t"}) == (
            job.queue,
            job.task,
            job.priority,
            job.max_attempts,
            job.headers,
        )
        assert NOON + timedelta(days=1) == job.expires_at
        assert job.run_after == job.visible_at
    assert [
        ([1], {"a": 2}),
        ([1], {}),
        ([], {"a": 2}),
        ([3], {}),
        ([], {"n": 1, "fixed": "x"}),
        ([], {"n": 2, "fixed": "x"}),
    ] == [(job.args, job.kwargs) for job in jobs]
    assert [NOON + timedelta(microseconds=n) for n in (5, 7, 6, 5)] == [
        job.run_after for job in jobs[:4]
    ]
    assert all(NOON <= job.run_after < NOON + MINUTE for job in jobs[4:])


def test_nothing_is_stored_where_a_key_is_null(cursor):
    """The caller is told in how many rows; a NULL that is no key is stored."""
    query = "SELECT nullif(n, 2) FROM generate_series(1, 3) n"

    stored = from_select(cursor, query, key=[KeyPart("n")])
    assert (0, 1, []) == (stored.count, stored.keyless, stored.ids)
    assert 0 == Job.objects.count()

    stored = from_select(cursor, query, key=[KeyPart("fixed")])
    assert (3, 0) == (stored.count, stored.keyless)


def test_a_window_without_a_time_begins_now(cursor, monkeypatch):
    """When the statement came; when the first one did, where there are several."""
    monkeypatch.setattr(module, "SPREAD_ROWS_MAX", 2)
    now = replace(WINDOW, run_at=None, over_microseconds=1)
    hour = timedelta(hours=1)
    cursor.execute("SELECT clock_timestamp()")
    (before,) = cursor.fetchone()

    enqueue_many(cursor, now, [Items("[]", 1)] * 5)
    enqueue_many(cursor, replace(now, delay=hour), [Items("[]", 1)] * 5)
    enqueue(cursor, replace(now, delay=hour), args="[]", kwargs="{}")

    cursor.execute("SELECT clock_timestamp()")
    (after,) = cursor.fetchone()
    moments = [job.run_after for job in Job.objects.order_by("pk")]
    assert (1, 1) == (len(set(moments[:5])), len(set(moments[5:10])))
    first, *later = moments
    assert before <= first <= after
    assert all(before <= moment - hour <= after for moment in later[4:])
