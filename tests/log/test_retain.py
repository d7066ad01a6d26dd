"""Retention of the log, step by step: who loses what is told before anything goes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from django_pgqueue.log import retain
from django_pgqueue.log.days import close_days
from django_pgqueue.log.groups import topic_of
from django_pgqueue.log.retain import (
    announce,
    delete_batch,
    due,
    inline_dead_letters,
    inline_jobs,
)
from django_pgqueue.models import DeadLetter, Job, Message
from tests.harness.factories import (
    make_dead_letter,
    make_group,
    make_job,
    make_message,
    make_position,
    make_topic,
)
from tests.harness.waiting import wait_until_blocked

WEEK = timedelta(days=7)


@pytest.fixture
def days(log_days):
    """Days that tests write to: nine and eight ago, yesterday."""
    return [log_days(9), log_days(8), log_days(1)]


def tell(cursor, going):
    with cursor.connection.transaction():
        return announce(cursor, going)


def reference(message):
    return [
        {
            "__pgqueue__": "message",
            "value": [message.pk, message.published_at.isoformat()],
        }
    ]


def inline(message, topic):
    return [
        {
            "__pgqueue__": "message",
            "value": {
                "id": message.pk,
                "topic": topic.name,
                "name": message.name,
                "key": message.key,
                "payload": message.payload,
                "headers": message.headers,
                "published_at": message.published_at.isoformat(),
                "partition": message.partition,
            },
        }
    ]


# What is due -------------------------------------------------------------------------


def test_a_topic_keeps_as_many_whole_days_as_it_says(cursor, days):
    """Its own retention, else that of the settings; days without its messages are no
    matter of it."""
    short, usual, long = (
        make_topic(name="short", retain=timedelta(0)),
        make_topic(name="usual"),
        make_topic(name="long", retain=timedelta(days=60)),
    )
    for topic in (short, usual, long):
        for days_ago in (8, 1, 0):
            make_message(topic, days_ago)
    close_days(cursor)
    nine, eight, yesterday = days

    found = due(cursor, default=WEEK)
    assert [("short", (eight, yesterday)), ("usual", (eight,))] == [
        (each.topic, each.days) for each in found.going
    ]
    assert (nine, eight, yesterday) == found.days
    assert [long.pk] == found.keepers(eight)
    assert {long.pk, usual.pk} == set(found.keepers(yesterday))
    assert not found.is_held
    assert ["short"] == [each.topic for each in due(cursor, default=None).going]


def test_what_somebody_may_still_publish_into_is_not_due(cursor, other_cursor, days):
    """A transaction that drew its ids on that day and is still open."""
    topic = make_topic()
    make_message(topic, 9)
    with other_cursor.connection.transaction():
        other_cursor.execute("SELECT pgqueue_begin_publish('orders')")
        # As an INSERT does before it draws an id.
        other_cursor.execute("LOCK TABLE ONLY pgqueue_message IN ROW EXCLUSIVE MODE")
        other_cursor.execute("SELECT nextval('pgqueue_message_id_seq')")
        close_days(cursor)
        found = due(cursor, default=WEEK)
        assert ((), (), True) == (found.going, found.days, found.is_held)
    assert ["orders"] == [each.topic for each in due(cursor, default=WEEK).going]


# Groups ------------------------------------------------------------------------------


def test_groups_that_have_not_read_what_goes_are_halted_and_told(cursor, days):
    """With how many messages, which ids and of when; others read on."""
    topic = make_topic()
    first, second, third = (make_message(topic, n, partition=3) for n in (9, 8, 1))
    behind = make_position(
        make_group(topic, name="behind"), 3, position=first.pk - 1, leased_by="worker"
    )
    half = make_position(make_group(topic, name="half"), 3, position=first.pk, fence=7)
    ahead = make_position(make_group(topic, name="ahead"), 3, position=second.pk)
    other = make_position(make_group(topic, name="other"), 4)
    close_days(cursor)
    (going,) = due(cursor, default=WEEK).going

    losses = tell(cursor, going)

    assert [
        ("behind", (3,), 2, True, first.pk, second.pk),
        ("half", (3,), 1, True, second.pk, second.pk),
    ] == [(loss.group, loss.partitions, loss.messages, *loss[5:8]) for loss in losses]
    assert (first.published_at, second.published_at) == losses[0][8:]
    for position in (behind, half, ahead, other):
        position.refresh_from_db()
    assert ["retention", "retention", None, None] == [
        position.halted_for for position in (behind, half, ahead, other)
    ]
    assert (1, None, first.pk - 1) == (behind.fence, behind.leased_by, behind.position)
    assert 8 == half.fence
    (entry,) = behind.errors
    assert ("retention", 2, True, first.pk, second.pk) == tuple(
        entry[name] for name in ("kind", "messages", "is_exact", "first_id", "last_id")
    )
    assert entry["message"].startswith(
        f"2 messages of orders were removed before they were read: ids {first.pk} to "
    )
    topic.refresh_from_db()
    assert second.pk == topic.removed_to
    assert third.pk > topic.removed_to


def test_a_group_that_reads_a_part_loses_only_of_that(cursor, days):
    """By what its where says; one that wants none of them is not halted."""
    topic = make_topic()
    make_message(topic, 9, payload={"country": "FR"})
    for country in ("FR", "DE"):
        group = make_group(topic, name=country, payload_filter={"country": country})
        make_position(group)
    close_days(cursor)
    (going,) = due(cursor, default=WEEK).going

    assert [("FR", 1)] == [(loss.group, loss.messages) for loss in tell(cursor, going)]


def test_a_seek_is_seen_or_sees_what_is_removed(cursor, other_cursor, new_cursor, days):
    """It holds the topic: retention waits for it, and halts the group then."""
    topic = make_topic()
    message = make_message(topic, 9)
    position = make_position(make_group(topic), position=message.pk)
    close_days(cursor)
    (going,) = due(cursor, default=WEEK).going

    with ThreadPoolExecutor(1) as pool:
        with other_cursor.connection.transaction():
            assert 0 == topic_of(other_cursor, topic.name).removed_to
            told = pool.submit(tell, cursor, going)
            wait_until_blocked(new_cursor(), cursor)
            other_cursor.execute("UPDATE pgqueue_position SET position = 0")
        assert 1 == len(told.result())

    position.refresh_from_db()
    assert "retention" == position.halted_for
    with other_cursor.connection.transaction():
        assert message.pk == topic_of(other_cursor, topic.name).removed_to


def test_a_reader_whose_batch_is_under_way_is_fenced_off(cursor, other_cursor, days):
    """It had claimed before the group was halted; what it writes matches nothing."""
    topic = make_topic()
    message = make_message(topic, 9)
    make_position(make_group(topic), fence=3, leased_by="reader")
    close_days(cursor)
    (going,) = due(cursor, default=WEEK).going
    tell(cursor, going)

    other_cursor.execute(
        "UPDATE pgqueue_position SET position = %s WHERE fence = 3", [message.pk]
    )
    assert 0 == other_cursor.rowcount


# Jobs and dead letters ---------------------------------------------------------------


def test_what_refers_to_a_message_that_goes_gets_the_message(cursor, days):
    """Jobs, also running ones, and dead letters; what refers to others does not."""
    topic = make_topic()
    gone = make_message(topic, 9, key="k", name="orders.paid", headers={"x": 1})
    kept = make_message(topic, 1)
    jobs = [
        make_job(args=reference(gone), message_id=gone.pk),
        make_job(args=reference(kept), message_id=kept.pk),
        make_job(args=[1], message_id=gone.pk),
        make_job(args=[reference(gone)], message_id=gone.pk),
        make_job(args=reference(gone)),
    ]
    letter = make_dead_letter(args=reference(gone), message_id=gone.pk)
    close_days(cursor)
    found = due(cursor, default=WEEK)

    assert (jobs[-1].pk, 2, 2) == inline_jobs(cursor, found, after=0)
    assert (letter.pk, 1, 1) == inline_dead_letters(cursor, found, after=0)
    assert (jobs[-1].pk, 0, 0) == inline_jobs(cursor, found, after=0)

    told = inline(gone, topic)
    assert [told, reference(kept), [1], [told], reference(gone)] == [
        Job.objects.get(pk=job.pk).args for job in jobs
    ]
    assert told == DeadLetter.objects.get().args


# Deleting ----------------------------------------------------------------------------


def test_messages_of_a_day_that_stays_go_in_batches(cursor, days, monkeypatch):
    """From where the last batch ended; those of other topics and days stay."""
    monkeypatch.setattr(retain, "DELETE_ROWS_MAX", 2)
    topic, other = make_topic(), make_topic(name="other")
    for n in range(3):
        make_message(topic, 9, partition=n % 2)
    kept = [make_message(other, 9), make_message(topic, 8)]

    first = delete_batch(cursor, topic.pk, days[0])
    assert (2, 0, True) == (first.rows, first.partition, first.is_full)
    second = delete_batch(
        cursor, topic.pk, days[0], partition=first.partition, after=first.last_id
    )
    assert (1, 1, False) == (second.rows, second.partition, second.is_full)
    assert (0, 0, 0) == delete_batch(cursor, topic.pk, days[0])
    assert {message.pk for message in kept} == set(
        Message.objects.values_list("pk", flat=True)
    )
