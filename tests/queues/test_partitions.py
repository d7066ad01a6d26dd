"""Partitions: the archive's days are made and dropped beside running acks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from django_pgqueue.models import ArchivedJob
from django_pgqueue.postgres.day_tables import ARCHIVE
from django_pgqueue.queues.settle import Ended, ack
from tests.harness.factories import make_archived_job, make_leased_job
from tests.harness.waiting import wait_for, wait_until_blocked

DAY = timedelta(days=1)
WEEK = timedelta(days=7)

TABLES = """
SELECT c.relname::text, c.relispartition FROM pg_class c
 WHERE c.relkind = 'r' AND c.relname ~ '^pgqueue_archived_job_'
"""
PENDING = """
SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = 'pgqueue_archived_job'::regclass AND i.inhdetachpending
"""


def tables(cursor):
    """Return whether each day's table is attached, by its day."""
    cursor.execute(TABLES)
    return {ARCHIVE.day_of(name): attached for name, attached in cursor.fetchall()}


def make(cursor, days_ahead=7):
    with cursor.connection.transaction():
        return ARCHIVE.make(cursor, days_ahead=days_ahead)


def add_partition(cursor, day):
    cursor.execute(
        f"CREATE TABLE {ARCHIVE.name_of(day)} PARTITION OF pgqueue_archived_job"
        f" FOR VALUES FROM ('{day} 00:00+00') TO ('{day + DAY} 00:00+00')"
    )


@pytest.fixture
def today(cursor, archive_days):
    """Today in UTC; the days of the archive are as before after the test."""
    cursor.execute("SELECT (statement_timestamp() AT TIME ZONE 'UTC')::date")
    (today,) = cursor.fetchone()
    return today


def pending(cursor):
    cursor.execute(PENDING)
    return [name for (name,) in cursor.fetchall()]


# Making ------------------------------------------------------------------------------


def test_the_missing_days_are_made(cursor, today):
    """Today and the days ahead; those that are there are left alone."""
    ARCHIVE.remove(cursor, today)
    ARCHIVE.remove(cursor, today + 3 * DAY)

    assert [today, today + 3 * DAY] == make(cursor)
    assert [] == make(cursor)
    assert [today + 8 * DAY] == make(cursor, days_ahead=8)


def test_a_made_day_takes_the_rows_of_that_day_in_utc(cursor, today):
    """From midnight to midnight, and it has the indexes of the archive."""
    day = today + 8 * DAY
    make(cursor, days_ahead=8)
    midnight = datetime.combine(day, datetime.min.time(), UTC)
    first = make_archived_job(finished_at=midnight)
    last = make_archived_job(finished_at=midnight + DAY - timedelta(microseconds=1))

    cursor.execute(f"SELECT id FROM {ARCHIVE.name_of(day)} ORDER BY id")
    assert [(first.pk,), (last.pk,)] == cursor.fetchall()
    key, result, tags = (
        "(id, finished_at)",
        "(finished_at) WHERE (result IS NOT NULL)",
        (
            "(((headers -> 'tags'::text))) WITH (gin_pending_list_limit='256')"
            " WHERE ((headers -> 'tags'::text) IS NOT NULL)"
        ),
    )
    for partition in (today, day):
        cursor.execute(
            "SELECT split_part(pg_get_indexdef(indexrelid), ' USING ', 2)"
            "  FROM pg_index WHERE indrelid = %s::regclass AND indisvalid",
            [ARCHIVE.name_of(partition)],
        )
        assert [f"btree {result}", f"btree {key}", f"gin {tags}"] == sorted(
            definition for (definition,) in cursor.fetchall()
        )


def test_days_are_made_beside_open_acks(cursor, other_cursor, new_cursor, today):
    """The maker waits for no open insert into the archive, and an ack for no maker."""
    job, second = make_leased_job("a"), make_leased_job("a")
    acking = new_cursor()
    for waiting in (other_cursor, acking):
        waiting.execute("SET lock_timeout = '1s'")

    with cursor.connection.transaction():
        ack(cursor, worker="a", ended=[Ended(job.pk, 1)])
        with other_cursor.connection.transaction():
            made = ARCHIVE.make(other_cursor, days_ahead=9)
            acked = ack(acking, worker="a", ended=[Ended(second.pk, 1)])

    assert [today + 8 * DAY, today + 9 * DAY] == made
    assert {second.pk} == acked


def test_two_makers_at_once_make_each_day_once(cursor, other_cursor, new_cursor, today):
    """The second waits for the first's commit and finds nothing missing."""
    with ThreadPoolExecutor(1) as pool:
        with cursor.connection.transaction():
            first = ARCHIVE.make(cursor, days_ahead=9)
            second = pool.submit(make, other_cursor, 9)
            wait_until_blocked(new_cursor(), other_cursor)
        assert [] == second.result()

    assert [today + 8 * DAY, today + 9 * DAY] == first


# Dropping ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keep,expired",
    [
        (WEEK, [8, 9]),
        (timedelta(days=8), [9]),
        (timedelta(days=6, hours=12), [8, 9]),
        (timedelta(0), [1, 7, 8, 9]),
        (timedelta(days=30), []),
    ],
    ids=str,
)
def test_a_day_has_expired_when_its_every_row_is_too_old(cursor, today, keep, expired):
    """The oldest is named first; a day that could hold a younger row stays."""
    for days_ago in (1, 7, 8, 9):
        add_partition(cursor, today - days_ago * DAY)

    assert [today - days_ago * DAY for days_ago in reversed(expired)] == (
        ARCHIVE.expired(cursor, keep)
    )


def test_a_drop_waits_for_open_acks_and_makes_no_ack_wait(
    cursor, other_cursor, new_cursor, today
):
    """It is detached concurrently: a long transaction delays the drop alone."""
    day = today - 9 * DAY
    add_partition(cursor, day)
    first, second = make_leased_job("a"), make_leased_job("a")
    acking = new_cursor()
    acking.execute("SET lock_timeout = '1s'")

    with ThreadPoolExecutor(1) as pool:
        with cursor.connection.transaction():
            ack(cursor, worker="a", ended=[Ended(first.pk, 1)])
            dropped = pool.submit(ARCHIVE.remove, other_cursor, day)
            wait_until_blocked(acking, other_cursor)
            assert {second.pk} == ack(acking, worker="a", ended=[Ended(second.pk, 1)])
            make_archived_job()
        dropped.result()

    assert day not in tables(cursor)
    assert 3 == ArchivedJob.objects.count()


# What a crash left half done ---------------------------------------------------------


def test_a_detach_that_was_cut_off_is_finished_and_its_day_dropped(
    cursor, other_cursor, new_cursor, today
):
    """The next sweep heals it; until then acks and reads go on."""
    day = today - 9 * DAY
    add_partition(cursor, day)
    observer = new_cursor()
    with ThreadPoolExecutor(1) as pool, cursor.connection.transaction():
        cursor.execute("SELECT count(*) FROM pgqueue_archived_job")
        dropped = pool.submit(ARCHIVE.remove, other_cursor, day)
        wait_until_blocked(observer, other_cursor)
        wait_for(lambda: pending(observer), what="the detach is pending")
        other_cursor.connection.cancel_safe()
        with pytest.raises(psycopg.errors.QueryCanceled):
            dropped.result()
    assert [ARCHIVE.name_of(day)] == pending(cursor)
    make_archived_job()

    assert [] == ARCHIVE.sweep(cursor, is_old=lambda old: old < day)
    assert [day] == ARCHIVE.sweep(cursor, is_old=lambda old: old <= day)

    assert [] == pending(cursor)
    assert day not in tables(cursor)
