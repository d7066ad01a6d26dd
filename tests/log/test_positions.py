"""Who reads which partition, and up to where it was read."""

import json
from datetime import timedelta

import pytest
from django.db.models import F

from django_pgqueue.exceptions import MessagesLost
from django_pgqueue.log import groups, positions
from django_pgqueue.models import (
    ConsumerGroup,
    DeadLetter,
    Message,
    Position,
    Topic,
)
from tests.log.log import (
    LEASE,
    batch,
    make_group,
    make_topic,
    payloads,
    put,
    take,
)

pytestmark = pytest.mark.django_db(transaction=True)

MOMENT = timedelta(milliseconds=1)
ERROR = json.dumps({"kind": "error", "message": "no"})


def lapse(group):
    """Let every lease be over, by the database's clock."""
    Position.objects.filter(group_id=group, leased_until__isnull=False).update(
        leased_until="2020-01-01T00:00Z"
    )


def test_a_partition_has_one_reader_at_a_time(cursor, other_cursor):
    """Until it is given back, or the lease is over; each claim raises the fence."""
    make_topic()
    group = make_group(cursor)
    put(cursor, 1)

    first = take(cursor, group)
    assert take(other_cursor, group, worker="w2") is None
    assert positions.free(cursor, first)
    second = take(other_cursor, group, worker="w2")
    lapse(group)
    third = take(cursor, group)
    assert [1, 2, 3] == [each.fence for each in (first, second, third)]
    assert ("w2", 1) == (third.lapsed_by, third.failures)


def test_readers_pass_over_a_partition_that_somebody_claims_now(cursor, other_cursor):
    """A claim that is not committed yet keeps nobody waiting."""
    make_topic()
    group = make_group(cursor)
    put(cursor, 1)

    with cursor.connection.transaction():
        assert take(cursor, group) is not None
        assert take(other_cursor, group) is None


def test_partitions_are_claimed_in_turn(cursor):
    """The one that was read the longest time ago is next, whatever it has left."""
    make_topic(partitions=4)
    group = make_group(cursor)
    for n in range(40):
        put(cursor, n, key=f"k{n}")

    turns = []
    for _ in range(12):
        claimed = take(cursor, group)
        read = batch(cursor, claimed, limit=1)
        positions.advance(cursor, claimed, read.to)
        turns.append(claimed.partition)
    assert [0, 1, 2, 3] * 3 == turns


@pytest.mark.parametrize("keeps", [True, False])
def test_a_position_moves_and_is_kept_or_given_back(cursor, keeps):
    """What had failed before is forgotten."""
    make_topic()
    group = make_group(cursor)
    put(cursor, 1, 2)
    claimed = take(cursor, group)
    positions.fail(cursor, claimed, delay=timedelta(0), error=ERROR)
    claimed = take(cursor, group)
    assert 1 == claimed.failures

    to = batch(cursor, claimed).to
    assert positions.advance(cursor, claimed, to, keeps=keeps)
    row = Position.objects.get()
    assert (to, 0, None, keeps) == (
        row.position,
        row.failures,
        row.errors,
        row.leased_by is not None,
    )


@pytest.mark.parametrize("forgets", [False, True])
def test_who_was_overtaken_writes_nothing(cursor, other_cursor, forgets):
    """
    Neither a position, nor a failure, a halt, a dead letter or a return.

    Also by its own next claim; or by another reader's of the same fence, since a server
    that crashes forgets claims that were not on disk.
    """
    make_topic()
    group = make_group(cursor)
    (first,) = put(cursor, 1)
    old = take(cursor, group)
    lapse(group)
    if forgets:
        Position.objects.update(fence=old.fence - 1, leased_by=None, leased_until=None)
    name = "w2" if forgets else "w1"
    new = take(other_cursor, group, worker=name)
    assert forgets == (new.fence == old.fence)

    message = Message.objects.get()
    assert not positions.advance(cursor, old, first)
    assert not positions.fail(cursor, old, delay=MOMENT, error=ERROR)
    assert not positions.halt(cursor, old, error=ERROR)
    assert not positions.free(cursor, old)
    assert (
        positions.skip(
            cursor,
            old,
            message_id=first,
            published_at=message.published_at,
            headers={},
            error=ERROR,
            reason="exhausted",
        )
        is None
    )
    row = Position.objects.get()
    assert (name, new.fence, 0, None) == (
        row.leased_by,
        row.fence,
        row.position,
        row.halted_at,
    )
    assert 0 == DeadLetter.objects.count()


def test_a_failure_keeps_the_partition_back_for_its_delay(cursor):
    """And the entry says what it was; the next claim counts it."""
    make_topic()
    group = make_group(cursor)
    ids = put(cursor, 1, 2, 3)
    claimed = take(cursor, group)
    positions.fail(cursor, claimed, delay=timedelta(hours=1), error=ERROR)
    assert take(cursor, group) is None
    (known,) = positions.look(cursor, group)
    assert not known.is_free
    assert 3_500 < known.seconds <= 3_600

    Position.objects.update(retry_at=None)
    claimed = take(cursor, group)
    assert (1, None) == (claimed.failures, claimed.single_to)
    positions.fail(
        cursor,
        claimed,
        delay=timedelta(0),
        error=ERROR,
        single_to=ids[1],
        counts=False,
    )
    claimed = take(cursor, group)
    assert (0, ids[1]) == (claimed.failures, claimed.single_to)
    assert 2 == len(Position.objects.get().errors)


def test_a_message_becomes_a_dead_letter_and_the_position_moves_past_it(cursor):
    """With all errors, the handler's task, and a list of one as its argument."""
    make_topic()
    group = make_group(cursor, queue="stats", max_attempts=3)
    first, second = put(cursor, "bad", "good")
    claimed = take(cursor, group)
    positions.fail(cursor, claimed, delay=timedelta(0), error=ERROR)
    claimed = take(cursor, group)
    message = batch(cursor, claimed).messages[0]

    dead = positions.skip(
        cursor,
        claimed,
        message_id=message.id,
        published_at=message.published_at,
        headers={"trace": "t"},
        error=ERROR,
        reason="exhausted",
        ran_seconds=0.5,
    )
    row = DeadLetter.objects.get(pk=dead)
    ((argument,),) = row.args
    assert ("stats", "tests.noop", first, "exhausted", 2, 3, {"trace": "t"}) == (
        row.queue,
        row.task,
        row.message_id,
        row.reason,
        len(row.errors),
        row.max_attempts,
        row.headers,
    )
    assert ("message", first) == (argument["__pgqueue__"], argument["value"][0])
    assert [second] == [each.id for each in batch(cursor, take(cursor, group)).messages]


def test_a_halted_partition_is_read_when_somebody_resumes(cursor):
    """With all its attempts; one that retention has halted has to be sought."""
    make_topic(partitions=2)
    group = make_group(cursor)
    for n in range(10):
        put(cursor, n, key=f"k{n}")
    for _ in range(2):
        claimed = take(cursor, group)
        positions.halt(cursor, claimed, error=ERROR)
    assert take(cursor, group) is None

    assert [1] == positions.resume(cursor, group, 1)
    assert [0] == positions.resume(cursor, group)
    assert (0, 0) == (take(cursor, group).failures, take(cursor, group).failures)
    Position.objects.filter(partition=0).update(
        halted_for="retention", halted_at="2020-01-01T00:00Z"
    )
    with pytest.raises(MessagesLost, match="in partition 0: it cannot go on"):
        positions.resume(cursor, group)


def test_nothing_of_a_paused_group_is_claimed(cursor):
    """Who and why are told; the second pause changes nothing."""
    make_topic()
    group = make_group(cursor)
    (first,) = put(cursor, 1)
    claimed = take(cursor, group)

    assert groups.pause(cursor, group, by="anna", reason="deploy")
    assert not groups.pause(cursor, group, by="bert")
    assert positions.advance(cursor, claimed, first)
    put(cursor, 2)
    assert take(cursor, group) is None
    row = ConsumerGroup.objects.get()
    assert ("anna", "deploy") == (row.paused_by, row.pause_reason)
    assert (True, False) == (
        groups.resume(cursor, group),
        groups.resume(cursor, group),
    )
    assert take(cursor, group) is not None


def test_a_group_begins_where_it_says(cursor):
    """Declaring it again moves nothing, and a new partition is read as a whole."""
    make_topic()
    ids = put(cursor, *range(10))
    Topic.objects.update(removed_to=ids[1])
    make_group(cursor, name="all")
    late = make_group(cursor, name="late", start="latest")
    moment = Message.objects.get(pk=ids[4]).published_at.isoformat()
    make_group(cursor, name="since", start=moment)
    Topic.objects.update(removed_to=0)
    put(cursor, 11)
    make_group(cursor, name="late", start="earliest", batch=7)

    starts = {
        (row.name): Position.objects.get(group_id=row.pk).position
        for row in ConsumerGroup.objects.all()
    }
    assert {"all": ids[1], "late": ids[-1], "since": ids[4] - 1} == starts
    assert [11] == payloads(batch(cursor, take(cursor, late)))
    Topic.objects.update(partitions=3)
    assert [1, 2] == groups.complete(cursor, late)
    assert 7 == groups.find(cursor, "clicks", "late").batch


def test_a_partition_is_kept_for_the_next_batch(cursor, other_cursor):
    """With a lease that begins anew and the next fence; a pause ends that."""
    make_topic()
    group = make_group(cursor)
    first, second = put(cursor, 1, 2)
    claimed = take(cursor, group)
    Position.objects.update(leased_until=F("leased_until") - timedelta(seconds=50))
    moved = positions.advance(cursor, claimed, first, goes_on=True, lease=LEASE)
    row = Position.objects.get()
    assert (first, claimed.fence + 1) == (moved.kept.position, moved.kept.fence)
    assert timedelta(seconds=50) < row.leased_until - moved.kept.claimed_at
    # Whoever did not hear of that writes nothing with the fence that it knows.
    assert positions.advance(cursor, claimed, second) is None
    assert not positions.fail(cursor, claimed, delay=MOMENT, error=ERROR)

    groups.pause(other_cursor, group)
    moved = positions.advance(cursor, moved.kept, second, goes_on=True, lease=LEASE)
    assert (second, None) == (moved.position, moved.kept)
    assert Position.objects.get().leased_by is None
