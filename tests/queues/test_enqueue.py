"""Enqueue: one job or many, in the caller's transaction."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_pgqueue.models import Job
from django_pgqueue.postgres import bulk
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.queues import rules as module
from django_pgqueue.queues.enqueue import Placement, enqueue, enqueue_many

NOON = datetime(2050, 1, 1, 12, tzinfo=UTC)

PLAIN = Placement(
    queue="default", task="shop.send", headers="{}", priority=0, max_attempts=5
)


def clock(cursor):
    cursor.execute("SELECT clock_timestamp()")
    return cursor.fetchone()[0]


def test_a_job_is_stored_as_it_was_described(cursor):
    """Each field of the placement lands in the column of its name."""
    placement = Placement(
        queue="mail",
        task="shop.send",
        headers='{"trace": "t"}',
        priority=-7,
        max_attempts=3,
        run_at=NOON,
        expire_at=NOON + timedelta(days=1),
    )

    job_id = enqueue(cursor, placement, args="[1, null]", kwargs='{"a": {"b": "ü"}}')

    job = Job.objects.get(pk=job_id)
    assert ("mail", "shop.send", -7, 3) == (
        job.queue,
        job.task,
        job.priority,
        job.max_attempts,
    )
    assert ([1, None], {"a": {"b": "ü"}}) == (job.args, job.kwargs)
    assert {"trace": "t"} == job.headers
    assert (NOON, NOON) == (job.run_after, job.visible_at)
    assert NOON + timedelta(days=1) == job.expires_at


def test_a_delay_counts_from_the_clock_of_the_database(cursor):
    """Not from the start of the transaction, and not from the caller's clock."""
    hour = timedelta(hours=1)
    with cursor.connection.transaction():
        cursor.execute("SELECT now()")
        (started,) = cursor.fetchone()
        before = clock(cursor)
        job_id = enqueue(
            cursor, replace(PLAIN, delay=hour, expire_in=hour), args="[]", kwargs="{}"
        )
        after = clock(cursor)

    job = Job.objects.get(pk=job_id)
    assert before + hour <= job.visible_at <= after + hour
    assert before + hour <= job.expires_at <= after + hour
    assert started + hour < job.visible_at


def test_many_jobs_keep_the_order_they_were_given_in(cursor, monkeypatch):
    """Ids rise and jobs become visible in that order, over several statements too."""
    monkeypatch.setattr(module, "BULK_ROWS_MAX", 4)

    ids = enqueue_many(
        cursor, PLAIN, [Items(f"[{n}],[{n + 1}]", 2) for n in range(0, 10, 2)]
    )

    assert sorted(ids) == ids
    by_time = Job.objects.order_by("visible_at")
    assert [(job_id, [n]) for n, job_id in enumerate(ids)] == list(
        by_time.values_list("pk", "args")
    )


@pytest.mark.parametrize(
    "items, statements",
    [
        ([Items('["1234"]', 1)] * 3, 3),
        ([Items("[0]", 1), Items("[1],[2]", 2), Items("[3]", 1)], 2),
        # What is within the limit of a job is stored, however long.
        ([Items("[]", 1), Items('["a long argument"]', 1), Items("[]", 1)], 3),
    ],
)
def test_a_statement_is_bounded_in_characters(db, monkeypatch, items, statements):
    """So that the server needs no memory for all arguments of a bulk at once."""
    monkeypatch.setattr(bulk, "BULK_CHARACTERS_MAX", 12)

    with CaptureQueriesContext(connection) as queries, connection.cursor() as cursor:
        ids = enqueue_many(cursor, PLAIN, items)

    assert statements == len(queries)
    everything = json.loads(f"[{','.join(item.text for item in items)}]")
    assert [*zip(ids, everything, strict=True)] == list(
        Job.objects.order_by("visible_at").values_list("pk", "args")
    )


def test_an_enqueue_waits_for_no_other_enqueue(cursor, other_cursor):
    """Two open transactions store jobs in one queue without waiting."""
    other_cursor.execute("SET lock_timeout = '1s'")
    with cursor.connection.transaction():
        enqueue(cursor, PLAIN, args="[]", kwargs="{}")
        with other_cursor.connection.transaction():
            enqueue(other_cursor, PLAIN, args="[]", kwargs="{}")

    assert 2 == Job.objects.count()
