"""Reading a group's log without a task: from Python, and by SQL alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from django.db import connection, transaction

from django_pgqueue import PositionLost, TopicError, topic
from django_pgqueue.log.groups import find_all
from django_pgqueue.log.lag import lag
from django_pgqueue.models import ConsumerGroup, Position, Queue
from django_pgqueue.operators.states import behind_of
from tests.log.log import make_group, make_topic, put

pytestmark = pytest.mark.django_db(transaction=True)


def pulled(partitions=1, **said):
    """Make a topic, and a group of it without a task."""
    make_topic(partitions=partitions)
    group = topic("clicks").group("g")
    assert group.create(**{"start": "earliest", **said})
    return group


def lapse():
    Position.objects.filter(leased_until__isnull=False).update(
        leased_until="2020-01-01T00:00Z"
    )


def payloads(batch):
    return [message.payload for message in batch]


def test_a_batch_is_one_partition_in_order_and_comes_again_until_it_is_committed(
    cursor,
):
    """An empty one where there is nothing left; a commit needs no task."""
    group = pulled()
    put(cursor, *range(5))

    first = group.receive(3)
    assert ([0, 1, 2], 0) == (payloads(first), first.partition)
    assert [] == payloads(group.receive())
    assert first.release()
    again = group.receive(3)
    again.commit()
    rest = group.receive(100)
    assert ([0, 1, 2], [3, 4]) == (payloads(again), payloads(rest))
    rest.commit()
    assert not group.receive()
    assert {"idle"} == {each.state for each in group.lag()}


def test_a_part_of_a_batch_is_committed_in_order_and_the_rest_comes_again(cursor):
    """The lease stays for what is left, with the same right to commit."""
    group = pulled()
    ids = put(cursor, *range(5))

    batch = group.receive()
    batch.commit(up_to=batch[1])
    assert ids[1] == Position.objects.get().position
    assert not group.receive()
    batch.commit(ids[2])
    assert batch.release()
    assert [3, 4] == payloads(group.receive())
    with pytest.raises(TopicError, match=r"commit\(0\): write a message of these"):
        batch.commit(0)


def test_a_commit_is_of_the_transaction_that_it_is_called_in(cursor):
    """Rolled back with it, and then called again; so effects happen exactly once."""
    group = pulled()
    put(cursor, *range(3))
    batch = group.receive()

    with transaction.atomic():
        Queue.objects.create(name="effect")
        batch.commit(batch[0])
        batch.commit()
        transaction.set_rollback(True)
    assert 0 == Queue.objects.filter(name="effect").count()
    with transaction.atomic():
        batch.commit()
    assert not group.receive()


def test_who_was_overtaken_moves_nothing(cursor):
    """By the end of the lease, or by a seek: its transaction cannot commit unaware."""
    group = pulled()
    ids = put(cursor, *range(3))

    old = group.receive()
    lapse()
    new = group.receive()
    with pytest.raises(PositionLost, match="partition 0 of the group clicks/g"):
        old.commit()
    for refused in (old.nack, old.extend):
        with pytest.raises(PositionLost):
            refused()
    assert not old.release()
    new.extend("2h")
    group.seek(ids[0])
    with pytest.raises(PositionLost):
        new.commit()
    assert ids[0] == Position.objects.get().position


def test_what_took_its_reader_down_comes_alone_and_halts_where_the_group_says_so(
    cursor,
):
    """Each attempt is a lease that was not given back; the others go on."""
    group = pulled(on_error="halt", max_attempts=2)
    put(cursor, "fine", "bad", "later")
    group.receive()
    lapse()

    fine = group.receive()
    assert ["fine"] == payloads(fine)
    fine.commit()
    for _ in range(2):
        assert ["bad"] == payloads(group.receive())
        lapse()
    assert not group.receive()
    assert {"halted"} == {each.state for each in group.lag()}
    assert "died" in group.lag()[0].last_error
    assert [0] == group.read_on()
    assert ["bad"] == payloads(group.receive())


def test_a_message_that_is_given_back_waits_and_counts_as_an_attempt(cursor):
    """What was committed before it stays done; the error is told."""
    group = pulled(on_error="halt", max_attempts=2)
    put(cursor, *range(3))

    batch = group.receive()
    batch.commit(batch[0])
    batch.nack("1h", error=ValueError("card 4111"))
    assert not group.receive()
    (lag,) = group.lag()
    assert ("retrying", 1, "card 4111") == (lag.state, lag.failures, lag.last_error)
    with pytest.raises(TopicError, match=r"nack\(\): "):
        batch.nack("soon")
    Position.objects.update(retry_at=None)
    group.receive(1).nack()
    assert "halted" == group.lag()[0].state


def test_readers_at_once_have_a_partition_each_and_nobody_has_a_message_twice(cursor):
    """While somebody publishes all the time; Python and SQL read the same rows."""
    group = pulled(partitions=4)
    wanted = 240
    dsn = connection.get_connection_params()
    dsn.pop("cursor_factory", None)
    dsn.pop("context", None)

    def publishes(start):
        with psycopg.connect(**dsn, autocommit=True) as session:
            for n in range(start, wanted, 2):
                session.execute(
                    "SELECT pgqueue_publish('clicks', %s::jsonb, %s)",
                    (str(n), f"k{n % 16}"),
                )

    def reads_by_sql(_):
        got, misses = [], 0
        with psycopg.connect(**dsn, autocommit=True) as session:
            while misses < 100:
                rows = session.execute(
                    "SELECT id, key, payload, receipt FROM pgqueue_read('clicks/g', 7)"
                ).fetchall()
                misses = 0 if rows else misses + 1
                if rows and session.execute(
                    "SELECT pgqueue_commit_position(%s, %s)",
                    (rows[-1][3], rows[-1][0]),
                ).fetchone() == (True,):
                    got += [row[:3] for row in rows]
        return got

    def reads_by_python(_):
        got = []
        try:
            while batch := group.receive(7, wait=0.3):
                batch.commit()
                got += [(each.id, each.key, each.payload) for each in batch]
        finally:
            connection.close()
        return got

    with ThreadPoolExecutor(6) as pool:
        writers = [pool.submit(publishes, start) for start in (0, 1)]
        readers = [pool.submit(reads_by_sql, None) for _ in range(2)]
        readers += [pool.submit(reads_by_python, None) for _ in range(2)]
        for each in writers:
            each.result()
        found = [reader.result() for reader in readers]
        rest = reads_by_python(None)

    everything = [row for each in found for row in each] + rest
    assert list(range(wanted)) == sorted(payload for _, _, payload in everything)
    for each in found:
        for key in {key for _, key, _ in each}:
            ids = [row[0] for row in each if row[1] == key]
            assert sorted(ids) == ids


def test_workers_and_receivers_leave_each_other_s_groups_alone(cursor):
    """One without a task is never stale; one with a task is not received from."""
    group = pulled()
    make_group(cursor, name="stats")

    with pytest.raises(TopicError, match=r"its task tests\.noop would not get"):
        topic("clicks").group("stats").receive()
    with pytest.raises(TopicError, match="for which workers read"):
        topic("clicks").group("stats").create()
    assert not group.create(lease="5m")
    row = ConsumerGroup.objects.get(name="g")
    assert ("", None, 300.0) == (row.task, row.last_declared_at, row.lease_seconds)
    put(cursor, 1)
    states = {
        row.name: behind_of(row, lag(cursor, row.id), set()).state
        for row in find_all(cursor)
    }
    assert {"g": "waiting", "stats": "unserved"} == states


def test_a_message_that_python_cannot_read_keeps_only_its_partition(cursor):
    """What comes before it is received; then it is the attempts' business."""
    group = pulled(on_error="halt", max_attempts=1)
    put(cursor, 1)
    cursor.execute("SELECT pgqueue_publish('clicks', %s::jsonb, 'k')", ["9" * 5_000])
    put(cursor, 3)

    batch = group.receive()
    assert [1] == payloads(batch)
    batch.commit()
    assert not group.receive()
    assert ("halted", 2) == (group.lag()[0].state, group.lag()[0].unread)


SETUP = """
DROP ROLE IF EXISTS pgqueue_test_reader;
CREATE ROLE pgqueue_test_reader;
GRANT EXECUTE ON FUNCTION pgqueue_read, pgqueue_commit_position
   TO pgqueue_test_reader
"""


def test_a_role_that_may_call_the_functions_needs_nothing_else(cursor):
    """And one that may not is refused."""
    pulled()
    ids = put(cursor, 1, 2)
    cursor.execute(SETUP)
    try:
        cursor.execute("SET ROLE pgqueue_test_reader")
        cursor.execute("SELECT * FROM pgqueue_read('clicks/g', 10)")
        rows = cursor.fetchall()
        assert (ids, [1, 2]) == ([row[0] for row in rows], [row[4] for row in rows])
        cursor.execute("SELECT pgqueue_commit_position(%s, %s)", [rows[0][7], ids[0]])
        assert (True,) == cursor.fetchone()
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            cursor.execute("SELECT * FROM pgqueue_position")
        cursor.execute(
            "RESET ROLE; REVOKE ALL ON FUNCTION pgqueue_read FROM "
            "pgqueue_test_reader; SET ROLE pgqueue_test_reader"
        )
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            cursor.execute("SELECT * FROM pgqueue_read('clicks/g', 10)")
    finally:
        cursor.execute(
            "RESET ROLE; DROP OWNED BY pgqueue_test_reader; "
            "DROP ROLE pgqueue_test_reader"
        )


def test_sql_is_told_what_it_cannot_do(cursor):
    """Another isolation, no such group, a receipt that is none, an id beyond it."""
    pulled()
    ids = put(cursor, 1, 2, 3)
    make_group(cursor, name="stats")
    cursor.execute("SELECT * FROM pgqueue_read('clicks/g', 2)")
    receipt = cursor.fetchall()[0][7]

    for sql, params, problem in (
        ("SELECT pgqueue_read('clicks/x', 1)", [], "no consumer group clicks/x"),
        ("SELECT pgqueue_read('clicks/stats', 1)", [], "workers read for the group"),
        ("SELECT pgqueue_read('clicks/g', 0)", [], "from 1 to 10000"),
        ("SELECT pgqueue_commit_position('x', 1)", [], "what pgqueue_read"),
        ("SELECT pgqueue_commit_position(%s, NULL)", [receipt], "what pgqueue_read"),
        ("SELECT pgqueue_commit_position(%s, %s)", [receipt, ids[2]], "lies beyond"),
    ):
        with pytest.raises(psycopg.Error, match=problem):
            cursor.execute(sql, params)
    cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    with pytest.raises(psycopg.Error, match="in a transaction of REPEATABLE READ"):
        cursor.execute("SELECT pgqueue_read('clicks/g', 1)")
    cursor.execute("ROLLBACK")
    forged = " ".join([*receipt.split(" ")[:3], "pull:1/guess"])
    cursor.execute("SELECT pgqueue_commit_position(%s, %s)", [forged, ids[0]])
    assert (False,) == cursor.fetchone()
    assert {0} == set(Position.objects.values_list("position", flat=True))


def test_a_client_that_dies_in_its_transaction_holds_nobody_up(cursor, other_cursor):
    """It had the partition for itself until then, by its row alone, and no lease."""
    pulled()
    ids = put(cursor, 1, 2)
    other_cursor.execute("BEGIN")
    other_cursor.execute("SELECT id, receipt FROM pgqueue_read('clicks/g', 10)")
    (first, *_), (last, receipt) = other_cursor.fetchall()
    other_cursor.execute("SELECT pgqueue_commit_position(%s, %s)", [receipt, last])

    cursor.execute("SELECT id FROM pgqueue_read('clicks/g', 10)")
    assert [] == cursor.fetchall()
    pid = other_cursor.connection.info.backend_pid
    cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])
    cursor.execute("SELECT id FROM pgqueue_read('clicks/g', 10)")
    assert ids == [first, last] == [row[0] for row in cursor.fetchall()]
