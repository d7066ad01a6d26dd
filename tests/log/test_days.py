"""Days of the log: made, closed with a proof that holds, dropped beside others."""

from __future__ import annotations

import pytest

from django_pgqueue.log.closed_days import closed_days
from django_pgqueue.log.days import (
    close_days,
    drop_day,
)
from django_pgqueue.log.horizon import DRAWN
from django_pgqueue.models import Message
from django_pgqueue.postgres.day_tables import LOG
from tests.harness.factories import make_message, make_topic


@pytest.fixture
def yesterday(log_days):
    """Yesterday, which the log has."""
    return log_days(1)


def closed(cursor):
    return dict(closed_days(cursor).closed)


def highest(cursor):
    cursor.execute(f"SELECT {DRAWN}")
    return cursor.fetchone()[0]


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
    with pytest.raises(Exception, match=f"{LOG.name_of(yesterday)}_closed"):
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
