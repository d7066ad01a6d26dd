"""Log retention by size: rounds that keep topics and the log within their bounds."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_pgqueue import signals
from django_pgqueue.log import browse
from django_pgqueue.log.days import close_days
from django_pgqueue.models import LogDay, Message, Position
from django_pgqueue.postgres.day_tables import LOG
from django_pgqueue.worker.chores.log_retention import (
    PAUSE_SECONDS,
    STEP_PAUSE_SECONDS_MAX,
    LogRetention,
)
from tests.harness.factories import (
    make_group,
    make_message,
    make_position,
    make_topic,
)
from tests.log.rows import fill_day


def run_round(link, *, keep=None, **options):
    """Take the steps of one round; return the last pause."""
    chore = LogRetention(keep, **options)
    for _ in range(200):
        pause = chore(link)
        if pause > STEP_PAUSE_SECONDS_MAX:
            return pause
    raise AssertionError("a round has no end")


def test_a_topic_with_a_bound_keeps_its_newest_days(link, cursor, log_days):
    """Others keep theirs; a group that has not read what goes is halted, and told."""
    told = []
    signals.group_lost_messages.connect(receiver := lambda **f: told.append(f))
    try:
        olds = [log_days(n) for n in (5, 4, 3)]
        orders = make_topic(retain_bytes=2_100_000)
        audit = make_topic(name="audit")
        for day in olds:
            fill_day(cursor, orders, day, n=150, size=200)
            fill_day(cursor, audit, day, n=1, size=200)
        first = make_message(orders, 5)
        make_position(make_group(orders), position=0)
        make_message(orders)
        close_days(cursor)

        assert PAUSE_SECONDS == run_round(link)

        assert {(orders.pk, day) for day in olds[1:]} | {
            (audit.pk, day) for day in olds
        } == set(
            Message.objects.exclude(payload={"days_ago": 0}).values_list(
                "topic_id", "published_at__date"
            )
        )
        assert "retention" == Position.objects.get().halted_for
        assert [("orders", 38, first.pk)] == [
            (each["topic"], each["messages"], max(each["last_id"], first.pk))
            for each in told
        ]
        orders.refresh_from_db()
        assert 2_000_000 == pytest.approx(orders.log_bytes, rel=0.6)
    finally:
        signals.group_lost_messages.disconnect(receiver)

    # What is gone counts no more, so nothing else goes.
    before = Message.objects.count()
    assert PAUSE_SECONDS == run_round(link)
    assert before == Message.objects.count()


def test_a_bound_of_the_log_takes_the_oldest_day_of_all_topics(link, cursor, log_days):
    """As a table; whatever its topics say. What is not closed stays."""
    olds = [log_days(n) for n in (5, 4, 3)]
    orders = make_topic(retain=timedelta(days=60))
    for day in olds:
        fill_day(cursor, orders, day, n=150, size=200)
    close_days(cursor)
    files = {each.day: each.bytes for each in browse.days(cursor)}
    most = sum(files.values()) - files[olds[0]]

    assert PAUSE_SECONDS == run_round(link, bytes_max=most)
    assert olds[1:] == [day for day in LOG.attached(cursor) if day in olds]

    LogDay.objects.filter(day=olds[2]).delete()
    assert PAUSE_SECONDS == run_round(link, bytes_max=1)
    assert olds[2:] == [day for day in LOG.attached(cursor) if day in olds]


WEEK = timedelta(days=7)
INGESTED = """
INSERT INTO pgqueue_ingest_position AS p (topic_id, target, read_to, run_id, read_at)
VALUES (%s, %s, %s, 1, clock_timestamp() - %s)
    ON CONFLICT (topic_id, target) DO UPDATE SET read_to = EXCLUDED.read_to
"""


def days_of(topic):
    """Return how many days ago a topic's messages were published, oldest first."""
    return [
        each.payload["days_ago"]
        for each in Message.objects.filter(topic_id=topic.pk).order_by("id")
    ]


def test_days_wait_until_ingest_has_read_them(link, cursor, log_days, caplog):
    """
    To each place that was written to lately, and no longer than the topic says.

    A topic that was never ingested waits if it says so itself.
    """
    topics = [
        make_topic(name="said", wait_for_ingest=timedelta(days=3)),
        make_topic(name="ingested"),
        make_topic(name="refuses", wait_for_ingest=timedelta(0)),
        make_topic(name="others"),
    ]
    last = {}
    for days_ago in (12, 9, 8, 1):
        log_days(days_ago)
        last[days_ago] = [make_message(each, days_ago) for each in topics][-1].pk
    close_days(cursor)
    # What was drawn by the end of a day is what tests have drawn since.
    for day, days_ago in zip(
        LogDay.objects.order_by("day"), (12, 9, 8, 1), strict=True
    ):
        LogDay.objects.filter(pk=day.pk).update(last_id=last[days_ago])
    said, ingested, refuses, _others = topics
    for target, read_to, age in (
        ("/a", last[9], timedelta(0)),
        ("/b", last[1], timedelta(0)),
        ("/gone", 0, timedelta(days=11)),
    ):
        cursor.execute(INGESTED, [ingested.pk, target, read_to, age])
        cursor.execute(INGESTED, [refuses.pk, target, read_to, age])
    wait = timedelta(days=3)

    assert PAUSE_SECONDS == run_round(link, keep=WEEK, wait=wait)

    assert [[9, 8, 1], [8, 1], [1], [1]] == [days_of(each) for each in topics]
    assert 2 == caplog.text.count("its days wait for the pipeline job ingest")

    cursor.execute(INGESTED, [ingested.pk, "/a", last[1], timedelta(0)])
    cursor.execute(INGESTED, [said.pk, "/a", last[9], timedelta(0)])
    assert PAUSE_SECONDS == run_round(link, keep=WEEK, wait=wait)
    assert [[8, 1], [1], [1], [1]] == [days_of(each) for each in topics]

    # A bound of bytes waits for nobody.
    assert PAUSE_SECONDS == run_round(link, keep=WEEK, wait=wait, bytes_max=1)
    assert [[], [], [], []] == [days_of(each) for each in topics]
