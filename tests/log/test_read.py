"""Reading a partition of a topic's log."""

import json
from datetime import date, timedelta

import pytest

from django_pgqueue.log import positions
from django_pgqueue.log.lag import holders, lag
from django_pgqueue.log.message import Message
from django_pgqueue.log.publish import publish
from django_pgqueue.models import Message as MessageRow
from django_pgqueue.models import Position
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.tasks.payload import decode_value
from tests.log.log import (
    batch,
    bound_of,
    make_group,
    make_topic,
    payloads,
    put,
    take,
)

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_message_is_read_as_it_was_published(cursor):
    """Whatever its payload is; published_at is in UTC."""
    make_topic()
    group = make_group(cursor)
    values = [{"a": [1, None, "ü\n"]}, [], 7, None, "text", 1.5, True]
    items = [
        Items(json.dumps(["clicks.new", "k", each, {"trace": "t"}]), 1)
        for each in values
    ]
    ids = publish(cursor, "clicks", items).ids

    read = batch(cursor, take(cursor, group))
    assert (values, ids) == (payloads(read), [each.id for each in read.messages])
    first = read.messages[0]
    assert (
        Message(
            id=ids[0],
            topic="clicks",
            name="clicks.new",
            payload={"a": [1, None, "ü\n"]},
            key="k",
            headers={"trace": "t"},
            published_at=MessageRow.objects.get(pk=ids[0]).published_at,
            partition=0,
        )
        == first
    )
    assert timedelta(0) == first.published_at.utcoffset()


@pytest.mark.parametrize("where", [None, "{}"])
def test_a_message_that_cannot_be_read_stops_no_other(cursor, where):
    """A batch ends before it; then it comes alone, without its payload."""
    make_topic()
    group = make_group(cursor)
    odd = {"day": {"__pgqueue__": "date", "value": "2026-01-31"}}
    ids = put(cursor, {}, odd)
    cursor.execute(
        "SELECT pgqueue_publish('clicks', jsonb_build_object('n', 1e5000), 'k')"
    )
    ids += cursor.fetchone()
    ids += put(cursor, {})
    claimed = take(cursor, group)
    read = [
        batch(cursor, claimed._replace(position=at), where=where, decode=decode_value)
        for at in (0, ids[1], ids[2])
    ]

    assert [[{}, {"day": date(2026, 1, 31)}], [None], [{}]] == [*map(payloads, read)]
    assert ids[1:] == [*(each.to for each in read[:2]), read[2].messages[-1].id]
    assert [True, True, False] == [each.has_more for each in read]
    assert [None, "UndecodablePayload", None] == [
        each.error and type(each.error).__name__ for each in read
    ]


def test_a_batch_ends_at_its_limit_or_at_the_bound(cursor):
    """A short one was looked at up to the bound, whose id may be of another topic."""
    make_topic()
    group = make_group(cursor)
    ids = put(cursor, *range(5))
    put(cursor, 0, topic="orders")
    claimed = take(cursor, group)

    whole, part = batch(cursor, claimed, limit=5), batch(cursor, claimed, limit=2)
    rest = batch(cursor, claimed, limit=6)
    assert (ids[4], True) == (whole.to, whole.has_more)
    assert (ids[1], True, [0, 1]) == (part.to, part.has_more, payloads(part))
    assert (bound_of(cursor), False) == (rest.to, rest.has_more)


def test_nothing_is_read_that_could_be_overtaken(cursor, other_cursor):
    """What commits behind an open transaction of the topic waits for its end."""
    make_topic()
    group = make_group(cursor)
    with other_cursor.connection.transaction():
        put(other_cursor, "first")
        put(cursor, "second")
        assert take(cursor, group) is None
        (row,) = lag(cursor, group)
        (holder,) = holders(cursor)
    assert ("held back", 1, 1) == (row.state, row.unread, row.held_back)
    assert (make_topic_id(), "tests") == (holder.topic_id, holder.application_name)
    assert ["first", "second"] == payloads(batch(cursor, take(cursor, group)))


def make_topic_id():
    from django_pgqueue.models import Topic

    return Topic.objects.get(name="clicks").pk


def test_a_filter_selects_in_the_database(cursor):
    """And says up to where it has looked, however little it has found."""
    make_topic()
    group = make_group(cursor)
    ids = put(cursor, *[{"n": n, "odd": n % 2 == 1} for n in range(100)])
    claimed = take(cursor, group)

    odd = batch(cursor, claimed, limit=3, where='{"odd": true}')
    assert ([1, 3, 5], ids[5], True) == (
        [each["n"] for each in payloads(odd)],
        odd.to,
        odd.has_more,
    )
    none = batch(cursor, claimed, limit=3, where='{"n": 70}')
    assert ([], ids[59], True) == (payloads(none), none.to, none.has_more)
    rest = batch(cursor, claimed._replace(position=none.to), limit=3, where='{"n": 70}')
    assert ([70], bound_of(cursor), False) == (
        [each["n"] for each in payloads(rest)],
        rest.to,
        rest.has_more,
    )


def test_lag_counts_what_is_unread(cursor):
    """Up to a limit, with the age of the oldest and a word for what happens."""
    make_topic(partitions=2)
    group = make_group(cursor)
    for n in range(20):
        put(cursor, n, key=f"k{n}")
    before = lag(cursor, group)
    assert (20, {"waiting"}) == (
        sum(row.unread for row in before),
        {row.state for row in before},
    )
    assert all(0 <= row.seconds < 60 for row in before)

    claimed = take(cursor, group)
    assert ["reading", "waiting"] == [row.state for row in lag(cursor, group)]
    positions.advance(cursor, claimed, batch(cursor, claimed).to)
    claimed = take(cursor, group)
    positions.fail(cursor, claimed, delay=timedelta(hours=1))
    rows = lag(cursor, group, limit=3)
    assert [("idle", 0, None), ("retrying", 3, True)] == [
        (row.state, row.unread, row.seconds and row.seconds > 0) for row in rows
    ]
    Position.objects.update(halted_at="2020-01-01T00:00Z", halted_for="error")
    assert {"halted"} == {row.state for row in lag(cursor, group)}


@pytest.mark.parametrize("where", [None, "{}"])
def test_a_batch_has_no_more_bytes_than_it_may(cursor, where):
    """Of text, however small it is in the table; one message always passes."""
    make_topic()
    group = make_group(cursor)
    ids = put(cursor, *[{"x": size * "x"} for size in (*[10_000] * 3, 50_000, 1, 1)])
    claimed = take(cursor, group)
    cursor.execute("SELECT sum(pg_column_size(payload)) FROM pgqueue_message")
    assert cursor.fetchone()[0] < 3_000

    seen, at = [], 0
    for _ in range(3):
        part = batch(
            cursor, claimed._replace(position=at), where=where, max_bytes=25_000
        )
        seen.append([each.id for each in part.messages])
        at = part.to
        assert (True, True) == (part.is_cut, part.has_more)
    assert [ids[:2], ids[2:3], ids[3:4]] == seen
    part = batch(cursor, claimed._replace(position=at), where=where, max_bytes=9)
    assert (ids[4:5], True) == ([each.id for each in part.messages], part.is_cut)
    rest = batch(cursor, claimed._replace(position=at), where=where)
    assert (ids[4:], False) == ([each.id for each in rest.messages], rest.is_cut)
