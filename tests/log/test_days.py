"""Days of the log: made, closed with a proof that holds, dropped beside others."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest

from django_pgqueue.log import days
from django_pgqueue.log.closed_days import closed_days
from django_pgqueue.log.days import (
    LOG,
    close_days,
    drop_day,
    guard_name,
    make_days,
    sweep,
)
from django_pgqueue.log.publish import publish
from django_pgqueue.models import Message
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.postgres.day_tables import DAYS_AHEAD
from tests.harness.factories import make_message, make_topic
from tests.harness.waiting import wait_for, wait_until_blocked

DAY = timedelta(days=1)

PENDING = """
SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = 'pgqueue_message'::regclass AND i.inhdetachpending
"""


@pytest.fixture
def yesterday(log_days):
    """Yesterday, which the log has."""
    return log_days(1)


def make(cursor, days_ahead=DAYS_AHEAD):
    with cursor.connection.transaction():
        return make_days(cursor, days_ahead=days_ahead)


def publish_one(cursor, topic="orders"):
    (message_id,) = publish(
        cursor, topic, [Items(json.dumps([topic, None, 1, {}]), 1)]
    ).ids
    return message_id


def closed(cursor):
    return dict(closed_days(cursor).closed)


def highest(cursor):
    cursor.execute(days.HIGHEST)
    return cursor.fetchone()[0]


# Making ------------------------------------------------------------------------------


# Closing -----------------------------------------------------------------------------


def test_a_day_that_is_over_is_closed_with_the_highest_id_that_was_drawn(
    cursor, yesterday
):
    """Nothing in it can have a higher one; and it is closed once."""
    message = make_message(make_topic(), 1)

    assert [yesterday] == close_days(cursor)
    assert [] == close_days(cursor)

    assert {yesterday: highest(cursor)} == closed(cursor)
    assert message.pk <= closed(cursor)[yesterday]


def test_a_closed_day_refuses_what_a_clock_that_stepped_back_would_write(
    cursor, yesterday
):
    """Loudly, since no reader would look there; ids that it may have go in."""
    topic = make_topic()
    early = make_message(topic, 1)
    close_days(cursor)

    cursor.execute("DELETE FROM pgqueue_message WHERE id = %s", [early.pk])
    make_message(topic, 1, id=early.pk)
    with pytest.raises(Exception, match=guard_name(yesterday)):
        make_message(topic, 1)


def test_a_day_that_somebody_writes_to_is_closed_later(cursor, other_cursor, yesterday):
    """Its messages are not committed; nobody waits behind the attempt for long."""
    topic = make_topic()
    with other_cursor.connection.transaction():
        other_cursor.execute(
            "INSERT INTO pgqueue_message"
            " (published_at, topic_id, partition, name, payload)"
            " VALUES (%s, %s, 0, 'orders', '1')",
            [f"{yesterday} 12:00+00", topic.pk],
        )
        assert [] == close_days(cursor)
    assert [yesterday] == close_days(cursor)


# Dropping ----------------------------------------------------------------------------


def test_a_dropped_day_is_gone_with_its_row(cursor, yesterday):
    """And the messages of other days stay."""
    topic = make_topic()
    make_message(topic, 1)
    kept = make_message(topic, 0)
    close_days(cursor)

    drop_day(cursor, yesterday)

    assert yesterday not in LOG.attached(cursor)
    assert {} == closed(cursor)
    assert [kept.pk] == list(Message.objects.values_list("pk", flat=True))
    cursor.execute("SHOW lock_timeout")
    assert ("0",) == cursor.fetchone()


def test_a_drop_waits_for_publishers_for_a_while_and_makes_none_wait(
    cursor, other_cursor, new_cursor, yesterday, monkeypatch
):
    """Then it gives up, and the next sweep goes on with it; nobody else notices."""
    monkeypatch.setattr(days, "DETACH_PATIENCE", "500ms")
    make_topic()
    observer, beside = new_cursor(), new_cursor()
    beside.execute("SET lock_timeout = '100ms'")
    with ThreadPoolExecutor(1) as pool, cursor.connection.transaction():
        publish_one(cursor)
        dropped = pool.submit(drop_day, other_cursor, yesterday)
        wait_until_blocked(observer, other_cursor)
        publish_one(beside)
        beside.execute("SELECT count(*) FROM pgqueue_message")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            dropped.result()
        observer.execute(PENDING)
        assert [(LOG.name_of(yesterday),)] == observer.fetchall()
        publish_one(beside)

    assert [yesterday] == sweep(cursor, may_go=lambda day: True)
    assert yesterday not in LOG.attached(cursor)


def test_a_sweep_finishes_what_a_killed_process_has_begun(
    cursor, other_cursor, new_cursor, yesterday
):
    """Its backend was killed while the detach waited."""
    make_topic()
    close_days(cursor)
    observer = new_cursor()
    with ThreadPoolExecutor(1) as pool, cursor.connection.transaction():
        publish_one(cursor)
        dropped = pool.submit(drop_day, other_cursor, yesterday)
        wait_until_blocked(observer, other_cursor)
        wait_for(lambda: observer.execute(PENDING).fetchall(), what="a pending detach")
        observer.execute(
            "SELECT pg_terminate_backend(%s)",
            [other_cursor.connection.info.backend_pid],
        )
        with pytest.raises(psycopg.OperationalError):
            dropped.result()

    assert [yesterday] == sweep(cursor, may_go=lambda day: True)
    assert {} == closed(cursor)
