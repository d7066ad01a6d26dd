"""Reading on from somewhere else."""

import threading
from datetime import UTC, datetime, timedelta

import pytest

from django_pgqueue.exceptions import MessagesLost
from django_pgqueue.log import positions
from django_pgqueue.log.seek import seek
from django_pgqueue.models import Message, Position, Topic
from tests.harness.waiting import wait_for
from tests.log.log import batch, make_group, make_topic, payloads, put, take

pytestmark = pytest.mark.django_db(transaction=True)


def move(cursor, group, to, **said):
    with cursor.connection.transaction():
        return [tuple(each) for each in seek(cursor, group, to, **said)]


def test_what_is_being_read_is_refused(cursor, other_cursor):
    """Its reader keeps nothing, and the next one begins where it was told to."""
    make_topic()
    group = make_group(cursor)
    ids = put(cursor, *range(5))
    claimed = take(cursor, group)

    assert [(0, 0, ids[2])] == move(other_cursor, group, ids[2])
    assert not positions.advance(cursor, claimed, ids[4])
    assert [3, 4] == payloads(batch(cursor, take(cursor, group)))


def test_a_seek_waits_for_a_transaction_that_moves_the_position(cursor, other_cursor):
    """Then the seek holds, and not what that transaction has written."""
    make_topic()
    group = make_group(cursor)
    ids = put(cursor, *range(5))
    claimed = take(cursor, group)
    with cursor.connection.transaction():
        assert positions.advance(cursor, claimed, ids[4])
        seeker = threading.Thread(target=move, args=(other_cursor, group, ids[0]))
        seeker.start()
        wait_for(lambda: is_waiting(cursor))
    seeker.join(10)
    assert ids[0] == Position.objects.get().position


def is_waiting(cursor):
    cursor.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
    return cursor.fetchone()[0] == 1


def test_earliest_and_latest(cursor):
    """What retention has left, and what is published from now on."""
    topic = make_topic(partitions=2)
    group = make_group(cursor)
    ids = put(cursor, *range(5))
    Topic.objects.update(removed_to=ids[0])

    assert {ids[-1]} == {now for _, _, now in move(cursor, group, "latest")}
    assert take(cursor, group) is None
    assert [(0, ids[-1], ids[0]), (1, ids[-1], ids[0])] == move(
        cursor, group, "earliest"
    )
    assert [(1, ids[0], ids[1])] == move(cursor, group, ids[1], partition=1)
    assert 2 == Position.objects.filter(group_id=group).count()
    assert topic.pk


def spread_over_time(ids, start, step):
    for place, message_id in enumerate(ids):
        Message.objects.filter(pk=message_id).update(
            published_at=start + place * timedelta(seconds=step)
        )


def test_a_time_is_found_in_each_partition(cursor):
    """The first message at or after it, whatever other topics have published."""
    topic = make_topic(partitions=3)
    group = make_group(cursor)
    ids = []
    for n in range(60):
        ids += put(cursor, n, key=f"k{n}")
        put(cursor, n, topic="orders")
    start = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    spread_over_time(ids, start, 60)
    spread_over_time(
        Message.objects.exclude(topic_id=topic.pk)
        .order_by("id")
        .values_list("pk", flat=True),
        start,
        60,
    )

    moment = start + timedelta(minutes=30)
    sought = move(cursor, group, moment)
    expected = {
        partition: Message.objects.filter(
            topic_id=topic.pk, partition=partition, published_at__gte=moment
        )
        .order_by("id")
        .first()
        .pk
        - 1
        for partition in range(3)
    }
    assert expected == {partition: now for partition, _, now in sought}


def test_what_retention_has_removed_cannot_be_sought(cursor):
    """Neither by id nor by time; the error says what there is."""
    make_topic()
    group = make_group(cursor)
    ids = put(cursor, *range(5))
    start = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    spread_over_time(ids, start, 600)
    Message.objects.filter(pk__lte=ids[1]).delete()
    Topic.objects.update(removed_to=ids[1])

    with pytest.raises(MessagesLost, match=rf"up to the id {ids[1]:,}, so nothing"):
        move(cursor, group, ids[0])
    with pytest.raises(MessagesLost, match="what is left begins at about"):
        move(cursor, group, start)
    later = start + timedelta(seconds=1_800)
    assert [(0, 0, ids[2])] == move(cursor, group, later)
