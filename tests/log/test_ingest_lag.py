"""How far the files that ingest writes are behind the log."""

from __future__ import annotations

import pytest

from django_pgqueue.log.ingest_lag import ingest_lag
from django_pgqueue.models import Generation
from django_pgqueue.pipeline.exports import note
from tests.harness.factories import make_message, make_topic

pytestmark = pytest.mark.django_db(transaction=True)


def behind(cursor, *, places=50, limit=100):
    """Return topic, target, messages, and hours since the oldest of them."""
    return [
        (each.topic, each.target, each.messages, each.seconds and each.seconds // 3_600)
        for each in ingest_lag(cursor, places=places, limit=limit)
    ]


def test_each_topic_is_behind_by_what_is_not_at_a_target(cursor, log_days):
    """In all partitions, former ones as well; of a target that nobody has written to
    for a week, nothing is told."""
    log_days(1), log_days(2)
    orders, mail = make_topic(partitions=2), make_topic(name="mail")
    Generation.objects.create(
        topic_id=orders.pk, first_partition=7, partitions=1, ended_by=1, last_id=1
    )
    read = make_message(orders, 2)
    for partition, days in ((0, 2), (1, 1), (1, 0), (7, 0)):
        make_message(orders, days, partition=partition)
    last = make_message(mail)
    assert [] == behind(cursor)

    note(cursor, "/srv/log", {"orders": read.pk, "mail": last.pk}, run=1)
    note(cursor, "/srv/other", {"orders": last.pk}, run=2)
    note(cursor, "/srv/old", {"orders": read.pk}, run=3)
    cursor.execute(
        "UPDATE pgqueue_ingest_position SET read_at = now() - interval '8d'"
        " WHERE target = '/srv/old'"
    )

    (hours,) = {each[3] for each in behind(cursor)} - {None}
    # Since noon of the day before yesterday.
    assert 36 <= hours <= 60
    expected = [
        ("mail", "/srv/log", 0, None),
        ("orders", "/srv/log", 4, hours),
        ("orders", "/srv/other", 0, None),
    ]
    assert expected == behind(cursor)
    assert ("orders", "/srv/log", 3, hours) in behind(cursor, limit=1)
    assert [("orders", "/srv/other", 0, None)] == behind(cursor, places=1)
