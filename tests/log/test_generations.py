"""A topic's count of partitions changes while it is published to and read."""

import random

import pytest

from django_pgqueue.log import generations, positions, pull
from django_pgqueue.log.seek import preview_seek, seek
from django_pgqueue.models import ConsumerGroup, Generation, Message, Position, Topic
from tests.log.log import batch, bound_of, make_group, make_topic, put, take

pytestmark = pytest.mark.django_db(transaction=True)

KEYS = [f"k{n}" for n in range(12)]


def change(cursor, partitions, topic="clicks"):
    with cursor.connection.transaction():
        return generations.repartition(cursor, topic, partitions)


def read_on(cursor, group, limit=3):
    """Read one batch as a reader does; return its messages, None: there is nothing."""
    claimed = take(cursor, group)
    if claimed is None:
        return None
    topic = Topic.objects.get(name="clicks")
    bound = bound_of(cursor)
    end = positions.end_of(cursor, group, topic.pk, claimed, bound)
    read = batch(cursor, claimed, limit=limit, bound=end)
    assert positions.advance(cursor, claimed, read.to)
    return read.messages


def read_all(cursor, group, limit=3):
    messages = []
    while (read := read_on(cursor, group, limit)) is not None:
        messages += read
    return messages


def disordered(messages):
    """Return ids that come after a higher one of their key."""
    latest, found = {}, []
    for each in messages:
        if each.id < latest.get(each.key, 0):
            found.append(each.id)
        latest[each.key] = max(each.id, latest.get(each.key, 0))
    return found


def tidy(cursor):
    """Let the leader see to generations, as it does every few seconds."""
    generations.close(cursor)
    for topic in generations.closed(cursor):
        with cursor.connection.transaction():
            generations.finish(cursor, topic)
            generations.drop(cursor, topic)


def counts():
    """The partitions of each generation that is left, the former ones first."""
    former = Generation.objects.order_by("id").values_list("partitions", flat=True)
    return [*former, Topic.objects.get(name="clicks").partitions]


def partitions_of(group):
    found = Position.objects.filter(group_id=group).order_by("partition")
    return list(found.values_list("partition", flat=True))


def test_each_key_keeps_its_order_across_changes(cursor, other_cursor):
    """Up, down and up, also for who publishes by a snapshot of before."""
    make_topic(partitions=4)
    group = make_group(cursor)
    put_all = [put(cursor, n, key=key) for n in range(3) for key in KEYS]
    other_cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    other_cursor.execute("SELECT 1")
    assert 4 == change(cursor, 6)
    put_all += [put(cursor, n, key=key) for n in range(3) for key in KEYS]
    first = [message for _ in range(5) for message in read_on(cursor, group)]
    late = [put(other_cursor, n, key=key) for n in range(3) for key in KEYS]
    other_cursor.execute("COMMIT")
    put_all += late + [put(cursor, n, key=key) for n in range(3) for key in KEYS]
    assert 6 == change(cursor, 3)
    put_all += [put(cursor, n, key=key) for n in range(3) for key in KEYS]

    messages = first + read_all(cursor, group)

    assert [] == disordered(messages)
    ids = sorted(each for (each,) in put_all)
    assert ids == sorted(each.id for each in messages)
    of_late = Message.objects.filter(id__in=[each for (each,) in late])
    assert set(range(4)) >= set(of_late.values_list("partition", flat=True))
    assert {4, 5, 6, 7, 8, 9, 10, 11, 12} >= set(
        Message.objects.exclude(partition__lt=4).values_list("partition", flat=True)
    )


def test_a_generation_ends_once_no_snapshot_is_of_before(cursor, other_cursor):
    """Also if its transaction has no id yet, and gets a higher one than the change."""
    make_topic(partitions=2)
    group = make_group(cursor)
    put(cursor, 1)
    other_cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    other_cursor.execute("SELECT 1")
    change(cursor, 3)
    read_all(cursor, group)

    tidy(cursor)
    assert ([2, 3], [0, 1, 2, 3, 4]) == (counts(), partitions_of(group))
    late = put(other_cursor, 2)
    tidy(cursor)
    other_cursor.execute("COMMIT")
    tidy(cursor)
    # It is closed, and has something to read.
    assert {2, 3, 4} < set(partitions_of(group))
    assert late == [each.id for each in read_all(cursor, group)]
    tidy(cursor)
    assert ([2, 3], [2, 3, 4]) == (counts(), partitions_of(group))
    assert not ConsumerGroup.objects.get().is_merging


def test_a_generation_is_forgotten_with_its_last_message(cursor):
    """Then its numbers are free; before that, no other count gets them."""
    make_topic(partitions=2)
    put(cursor, 1)
    change(cursor, 3)
    tidy(cursor)
    change(cursor, 2)
    tidy(cursor)
    assert ([2, 2], 5) == (counts(), Topic.objects.get().first_partition)

    Topic.objects.update(removed_to=Message.objects.get().pk)
    tidy(cursor)
    assert [2] == counts()
    change(cursor, 1)
    assert 0 == Topic.objects.get().first_partition


def test_a_halted_partition_holds_up_what_shares_its_keys_alone(cursor):
    """The others are read; the generation stays until it is read on."""
    make_topic(partitions=2)
    group = make_group(cursor)
    for key in KEYS:
        put(cursor, 1, key=key)
    halted = take(cursor, group)
    positions.halt(cursor, halted, error=None)
    change(cursor, 4)
    for key in KEYS:
        put(cursor, 2, key=key)
    tidy(cursor)

    read = read_all(cursor, group)
    tidy(cursor)

    left = Message.objects.exclude(id__in=[each.id for each in read])
    assert {halted.partition, 2 + halted.partition, 4 + halted.partition} >= set(
        left.values_list("partition", flat=True)
    )
    assert halted.partition in partitions_of(group)
    positions.resume(cursor, group)
    read += read_all(cursor, group)
    assert (2 * len(KEYS), []) == (len(read), disordered(read))
    tidy(cursor)
    assert [2, 3, 4, 5] == partitions_of(group)


def test_a_seek_back_reads_former_partitions_again_in_order(cursor):
    """Positions that were removed come back; a preview counts what is read again."""
    make_topic(partitions=4)
    group = make_group(cursor)
    for key in KEYS:
        put(cursor, 1, key=key)
    change(cursor, 6)
    for key in KEYS:
        put(cursor, 2, key=key)
    read_all(cursor, group)
    tidy(cursor)
    assert list(range(4, 10)) == partitions_of(group)

    assert 2 * len(KEYS) == preview_seek(cursor, group, "earliest").again
    with cursor.connection.transaction():
        assert 10 == len(seek(cursor, group, "earliest"))
    again = read_all(cursor, group)
    assert (2 * len(KEYS), []) == (len(again), disordered(again))
    tidy(cursor)
    assert list(range(4, 10)) == partitions_of(group)
    with cursor.connection.transaction():
        assert 6 == len(seek(cursor, group, "latest"))


def test_who_claims_before_the_change_reads_nothing_of_after_it(cursor):
    """A claim's bound has no message of a generation that the claim did not see."""
    make_topic(partitions=1)
    group = make_group(cursor)
    put(cursor, 1)
    claimed, bound = take(cursor, group), bound_of(cursor)
    change(cursor, 2)
    put(cursor, 2)

    topic = Topic.objects.get().pk
    assert not claimed.is_merging
    assert bound == positions.end_of(cursor, group, topic, claimed, bound)
    assert positions.advance(cursor, claimed, bound)
    assert take(cursor, group).is_merging


def test_a_group_without_a_task_keeps_the_order_too(cursor):
    """Several clients have a batch each; nobody gets what others have not done."""
    make_topic(partitions=4)
    make_group(cursor, task="")
    ids = [put(cursor, n, key=key)[0] for n in range(3) for key in KEYS]
    change(cursor, 6)
    ids += [put(cursor, n, key=key)[0] for n in range(3) for key in KEYS]
    change(cursor, 3)
    ids += [put(cursor, n, key=key)[0] for n in range(3) for key in KEYS]
    key_of = dict(Message.objects.values_list("id", "key"))
    draw, out, done = random.Random(3), [], set()

    while len(done) < len(ids):
        read = pull.pull(cursor, "clicks/g", 2)
        if read is not None:
            batch_ids = [row[0] for row in read.rows]
            for each in batch_ids:
                before = {i for i in ids if i < each and key_of[i] == key_of[each]}
                assert before <= done | set(batch_ids)
            out.append((read, batch_ids))
        if read is None or len(out) > 3:
            ended, of_batch = out.pop(draw.randrange(len(out)))
            assert pull.commit(cursor, ended.receipt, ended.last)
            done.update(of_batch)

    assert pull.pull(cursor, "clicks/g", 2) is None
