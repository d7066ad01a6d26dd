"""Consumer groups, read by real workers."""

from __future__ import annotations

import os
import signal

import pytest
from django.db import connections, transaction

from django_pgqueue import publish, topic
from django_pgqueue.log import groups
from django_pgqueue.log.seek import seek
from django_pgqueue.models import (
    ConsumerGroup,
    DeadLetter,
    Position,
    Topic,
)
from tests.app.models import Effect
from tests.harness.waiting import wait_for

PGQUEUE = {"TASK_MODULES": ["consume_tasks"], "LEASE_SECONDS": 60}


@pytest.fixture
def start(start_worker):
    """Start a worker that reads one topic."""

    def start(name, **said):
        return start_worker(
            "--queues", name, pgqueue={**PGQUEUE, **said.pop("pgqueue", {})}, **said
        )

    return start


def put(name, payloads, key=None, partitions=None):
    """Publish; return the ids."""
    if partitions:
        Topic.objects.create(name=name, partitions=partitions)
    keyed = (lambda _: key) if key else None
    return topic(name).publish_many(payloads, key=keyed)


def many(name, count, keys, partitions=4, **said):
    Topic.objects.create(name=name, partitions=partitions)
    return many_more(name, count, keys, **said)


def many_more(name, count, keys, **said):
    return topic(name).publish_many(
        [{"n": n, "key": f"k{n % keys}", **said} for n in range(count)], key="key"
    )


def done(the_ledger):
    """The ids that handlers have finished with, in order."""
    return [each for entry in the_ledger.entries("done") for each in entry.note]


def wait_for_done(the_ledger, ids, **said):
    wait_for(lambda: set(ids) <= set(done(the_ledger)), 20, what="all are read", **said)


def written():
    """The ids of the messages that rows were written for, in their order."""
    return list(Effect.objects.order_by("pk").values_list("job", flat=True))


def group_of(name):
    return ConsumerGroup.objects.get(topic=name).pk


def position(name):
    """The only position of the group that reads a topic; None: it has none so far."""
    group = ConsumerGroup.objects.filter(topic=name).first()
    return group and Position.objects.get(group_id=group.pk)


def test_a_group_reads_everything_in_order(start, the_ledger):
    """Once each; those of one key in the order of publishing, in batches."""
    ids = many("exact", 300, keys=7)
    worker = start("exact")
    more = many_more("exact", 50, keys=7)
    wait_for(lambda: Effect.objects.count() == 350, 20)

    assert sorted([*ids, *more]) == sorted(Effect.objects.values_list("job", flat=True))
    by_key = {}
    for message_id, key in Effect.objects.order_by("pk").values_list("job", "note"):
        by_key.setdefault(key, []).append(message_id)
    assert all(each == sorted(each) for each in by_key.values())
    assert {True} == {len(entry.note[1]) <= 10 for entry in the_ledger.entries("batch")}
    assert 0 == worker.stop()
    assert {None} == set(Position.objects.values_list("leased_by", flat=True))
    assert worker.lines(r"summary|stopped")


def test_keys_keep_their_order_while_the_count_of_partitions_changes(start):
    """Up and down, with four readers in two processes, one of which is killed."""
    ids = many("shares", 100, keys=7)
    worker = start("shares", processes=2)
    for place, count in enumerate((6, 3, 9, 4)):
        assert topic("shares").repartition(count)
        ids += many_more("shares", 60, keys=7)
        if place == 1:
            os.kill(worker.children()[0], signal.SIGKILL)
    wait_for(lambda: Effect.objects.count() >= len(ids), 30)

    by_key = {}
    for message_id, key in Effect.objects.order_by("pk").values_list("job", "note"):
        by_key.setdefault(key, []).append(message_id)
    assert sorted(ids) == sorted(each for ids in by_key.values() for each in ids)
    assert all(each == sorted(each) for each in by_key.values())


RESTS = """
SELECT count(*) FROM pg_stat_activity
 WHERE application_name LIKE 'pgqueue reader%%' AND datname = current_database()
   AND state = 'idle' AND query_start > %s
   AND (query LIKE '%%known.place%%' OR query LIKE '%%p.last_read_at%%')
"""


def test_what_an_open_transaction_holds_back_is_read_after_it(start, the_ledger):
    """Without a wake, which a transaction that rolls back does not send."""
    many("plain", 1, 1, partitions=1)
    start("plain")
    wait_for(lambda: done(the_ledger))
    other = connections.create_connection("default")
    try:
        with transaction.atomic(), other.cursor() as cursor:
            first = publish("plain", {})
            cursor.execute("SELECT pgqueue_publish('plain', '{}', 'k')")
            (second,) = cursor.fetchone()
            cursor.execute("SELECT clock_timestamp()")
            (since,) = cursor.fetchone()

            def rests():
                cursor.execute(RESTS, [since])
                return cursor.fetchone()[0]

            wait_for(rests, what="the reader has looked and found nothing")
            assert second not in done(the_ledger)
            transaction.set_rollback(True)
        wait_for_done(the_ledger, [second])
    finally:
        other.close()
    assert first not in done(the_ledger)


def test_a_bad_message_becomes_a_dead_letter_and_the_group_goes_on(start, the_ledger):
    """After three attempts of it alone; the others of its batch are done."""
    ids = put("exact", [{}, {}, {"do": "fail"}, {}, {}], key="k", partitions=1)
    worker = start("exact")
    good = [*ids[:2], *ids[3:]]
    wait_for_done(the_ledger, good)

    dead = DeadLetter.objects.get()
    assert (ids[2], "exhausted", "tests.app.consume_tasks.exact", "exact") == (
        dead.message_id,
        dead.reason,
        dead.task,
        dead.queue,
    )
    assert {"tests.app.tasks.Unlucky"} == {each["type"] for each in dead.errors}
    alone = [e for e in the_ledger.entries("batch") if e.note[1] == [ids[2]]]
    assert 3 == len(alone)
    wait_for(lambda: written() == good)
    assert worker.lines(rf"dead       job={dead.pk} group=exact/g .*reason=exhausted")


def test_a_halted_partition_waits_for_somebody(start, the_ledger):
    """It says so in the log; resumed, it goes on with the same message."""
    ids = put("halts", [{}, {"do": "fail"}, {}], key="k", partitions=1)
    worker = start("halts")
    wait_for(lambda: position("halts") and position("halts").halted_for)
    assert worker.wait_for_lines(rf"halted     group=halts/g .*={ids[1]} ")
    assert ids[:1] == done(the_ledger)
    assert ids[0] == position("halts").position

    with transaction.atomic(), connections["default"].cursor() as cursor:
        (moved,) = seek(cursor, group_of("halts"), ids[1])
    publish("halts", {}, key="k")
    wait_for_done(the_ledger, [ids[2]])
    assert (0, ids[1]) == (DeadLetter.objects.count(), moved.now)


def test_a_message_that_kills_its_process_is_found_and_put_aside(start, the_ledger):
    """Each death counts, and the others of the batch are done in the end."""
    ids = put("plain", [{}, {"do": "die"}, {}], key="k", partitions=1)
    worker = start("plain")
    wait_for_done(the_ledger, [ids[0], ids[2]])

    dead = DeadLetter.objects.get()
    assert (ids[1], "lease_expired") == (dead.message_id, dead.reason)
    assert {"lease_expired"} == {each["kind"] for each in dead.errors}
    assert worker.lines("lapsed     group=plain/g")


@pytest.mark.slow
def test_the_server_ends_the_transaction_of_a_handler_that_hangs(start, the_ledger):
    """A thread that cannot be stopped writes nothing; another one reads on."""
    ids = put("stuck", [{"do": "sleep in C", "seconds": 60}, {}], key="k", partitions=1)
    worker = start("stuck", processes=2)
    wait_for_done(the_ledger, ids)

    wait_for(lambda: written() == ids)
    assert worker.lines("lapsed     group=stuck/g")
    with connections["default"].cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in tr%'"
            " AND datname = current_database()"
        )
        assert (0,) == cursor.fetchone()


def test_a_seek_is_followed_while_the_group_is_read(start, the_ledger, gate):
    """What is being read then is refused; what was read comes again."""
    ids = put("plain", [{"n": n} for n in range(3)], key="k", partitions=1)
    worker = start("plain")
    wait_for_done(the_ledger, ids)
    held = put("plain", [{"do": "wait", "gate": str(gate)}], key="k")
    wait_for(lambda: len(the_ledger.entries("batch")) == 2)

    with transaction.atomic(), connections["default"].cursor() as cursor:
        seek(cursor, group_of("plain"), ids[0])
    gate.touch()
    wait_for(lambda: done(the_ledger).count(held[0]) == 2, 20)
    assert [*ids, *held, *ids[1:], *held] == done(the_ledger)
    assert worker.lines("stale      group=plain/g")


def test_a_paused_group_is_not_read(start, the_ledger):
    """What it reads is finished; resumed, it goes on."""
    ids = put("plain", [{}], key="k", partitions=1)
    start("plain", pgqueue={"POLL_INTERVAL_SECONDS": 0.2})
    wait_for_done(the_ledger, ids)
    with connections["default"].cursor() as cursor:
        groups.pause(cursor, group_of("plain"), by="anna")
    paused = put("plain", [{}], key="k")
    assert ids == done(the_ledger)

    with connections["default"].cursor() as cursor:
        groups.resume(cursor, group_of("plain"))
    wait_for_done(the_ledger, paused)


def test_what_is_acked_first_comes_once(start, the_ledger):
    """A failure is logged, a death too, and nothing is tried again; the next one is."""
    said = [{"do": "fail"}, {}, {"do": "die"}, {}, {}]
    ids = put("firsts", said, key="k", partitions=1)
    worker = start("firsts")
    wait_for_done(the_ledger, ids[4:])

    assert [ids[:2], ids[2:4], ids[4:]] == [
        e.note[1] for e in the_ledger.entries("batch")
    ]
    assert 0 == DeadLetter.objects.count()
    assert worker.lines("failed     group=firsts/g partition=0 after its position")


def test_a_kill_skips_nothing(start, the_ledger):
    """What the dead process had read comes again: with atomic, its rows come once."""
    ids = many("exact", 200, keys=20)
    worker = start("exact")
    for _ in range(2):
        before = len(the_ledger.entries("done"))
        # It may be through with the others by now.
        ids += many_more("exact", 100, keys=20)
        wait_for(lambda: len(the_ledger.entries("done")) > before + 2)  # noqa: B023
        for child in worker.children():
            os.kill(child, signal.SIGKILL)
    wait_for_done(the_ledger, ids)
    wait_for(lambda: Effect.objects.count() >= len(ids))
    assert sorted(ids) == sorted(Effect.objects.values_list("job", flat=True))
    repeats = len(done(the_ledger)) - len(ids)
    assert repeats <= 2 * 10


def test_a_stop_gives_back_what_does_not_end(start_worker, the_ledger, gate):
    """After the grace; it is no failure of what was read."""
    put("plain", [{"do": "wait", "gate": str(gate)}], key="k", partitions=1)
    worker = start_worker("--queues", "plain", "--grace", "0.2", pgqueue=PGQUEUE)
    wait_for(lambda: the_ledger.entries("batch"))

    worker.stop()
    row = position("plain")
    assert (0, None, 0) == (row.position, row.leased_by, row.failures)
