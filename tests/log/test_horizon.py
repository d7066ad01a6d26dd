"""The horizon: whom a publishing transaction holds back, for how long, and whom not."""

import json
import random
import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from django_pgqueue.log.horizon import HOLDERS, horizons
from django_pgqueue.log.publish import publish
from django_pgqueue.models import Message, Topic
from django_pgqueue.postgres import keys
from django_pgqueue.postgres.bulk import Items
from django_pgqueue.testing.embedded import (
    find_binaries,
    make_folder_of_server_user,
    run_as_server_user,
)
from tests.faults.server import Server
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)

HIGH_BITS = 2**32
NEAREST_THAT_IS_LATER = 2**31

SET = "SELECT setval('pgqueue_message_id_seq', %s)"
LOCKS = """
SELECT classid::bigint - %s, objid::bigint FROM pg_locks
 WHERE locktype = 'advisory' AND objsubid = 2 AND mode = 'ShareLock'
   AND pid = pg_backend_pid() ORDER BY 1
"""
# As who publishes takes them, of ids that never were.
TAKE = """
WITH log AS (DELETE FROM pgqueue_message WHERE false)
SELECT pg_advisory_xact_lock_shared(%s + topic, key) FROM unnest(%s::int[], %s::int[])
    AS held(topic, key)
"""
# How many of so many looks go beyond what was drawn when they were over.
AHEAD = """
CREATE FUNCTION pg_temp.ahead(looks integer) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE found integer := 0; bound bigint;
BEGIN
    FOR n IN 1..looks LOOP
        SELECT h.bound INTO bound FROM pgqueue_horizons() h WHERE h.topic_id IS NULL;
        IF bound > pg_sequence_last_value('pgqueue_message_id_seq') THEN
            found := found + 1;
        END IF;
    END LOOP;
    RETURN found;
END $$
"""
LOOK = "SELECT pg_temp.ahead(40000)"
DRAW = "SELECT count(nextval('pgqueue_message_id_seq')) FROM generate_series(1, 10000)"
READ = "SELECT id FROM pgqueue_message WHERE topic_id = %s AND id <= %s ORDER BY id"


def items(*payloads, name="orders", key=None):
    return [Items(json.dumps([name, key, each, {}]), 1) for each in payloads]


def topic_id(name):
    return Topic.objects.get(name=name).id


def readable(cursor, name):
    """Return what a reader of the topic may see now, by the rule of the horizon."""
    number = topic_id(name)
    bound = horizons(cursor).of(number)
    return [row[0] for row in cursor.execute(READ, [number, bound])]


def holders(cursor):
    cursor.execute(HOLDERS, {"class": keys.TOPICS})
    return cursor.fetchall()


def signed(value):
    """Return the low 32 bits as PostgreSQL's integer."""
    low = value % HIGH_BITS
    return low - HIGH_BITS if low >= NEAREST_THAT_IS_LATER else low


@pytest.fixture
def high_ids(cursor):
    """The sequence may be set anywhere; it is put back."""
    (before,) = cursor.execute(
        "SELECT last_value FROM pgqueue_message_id_seq"
    ).fetchone()
    yield
    cursor.execute(SET, [before])


@pytest.mark.slow
def test_no_bound_is_ahead_of_the_ids_that_were_drawn(cursor, other_cursor, high_ids):
    """While others draw: every 32nd writes a value of later, for a moment."""
    looked = threading.Event()

    def draw():
        while not looked.is_set():
            other_cursor.execute(DRAW)

    cursor.execute(AHEAD)
    with ThreadPoolExecutor(1) as pool:
        drawing = pool.submit(draw)
        try:
            (found,) = cursor.execute(LOOK).fetchone()
        finally:
            looked.set()
        drawing.result()
    assert found == 0


def test_a_bound_is_exact_at_any_distance_and_id(cursor, other_cursor, high_ids):
    """Modulo 2^32: what lies up to half of that behind counts, what comes later not."""
    draw = random.Random(7)
    edges = [2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1, 2**32, 2**32 + 1, 2**40 + 5]
    distances = [-1, 0, 1, 5, 2**31 - 1, -(2**31), -(2**31) + 1]
    for highest in [*edges, *(draw.randrange(2**33, 2**62) for _ in range(40))]:
        cursor.execute(SET, [highest])
        behind = distances + [
            draw.randrange(-NEAREST_THAT_IS_LATER, NEAREST_THAT_IS_LATER)
            for _ in range(100)
        ]
        topics = list(range(1, len(behind) + 1))
        with other_cursor.connection.transaction():
            low = [signed(highest - each) for each in behind]
            other_cursor.execute(TAKE, [keys.TOPICS, topics, low])
            found = horizons(cursor)
        assert highest == found.highest
        assert {
            topic: highest - each
            for topic, each in zip(topics, behind, strict=True)
            if each >= 0
        } == found.held


def test_the_first_message_ever_is_held_back(cursor, new_cursor, high_ids):
    """By a sequence that was never called, too."""
    cursor.execute("SELECT setval('pgqueue_message_id_seq', 1, false)")
    publisher = new_cursor()
    with publisher.connection.transaction():
        assert [1] == publish(publisher, "orders", items(1)).ids
        publisher.execute(LOCKS, [keys.TOPICS])
        ((number, low),) = publisher.fetchall()
        assert (0, 1) == (low, horizons(cursor).highest)
        assert 0 == horizons(cursor).of(number)


def test_a_publisher_holds_back_its_topic_alone(cursor, new_cursor):
    """For as long as it is open; HOLDERS says who it is, and since when."""
    for name in ("orders", "mail"):
        publish(cursor, name, items(0, name=name))
    before = readable(cursor, "orders")
    slow = new_cursor()
    slow.execute("SET application_name = 'web of the shop'")
    with slow.connection.transaction():
        mine = publish(slow, "orders", items(1, 2)).ids
        slow.execute("SELECT pg_sleep(0.02)")
        behind = publish(cursor, "orders", items(3)).ids
        elsewhere = publish(cursor, "mail", items(4, name="mail")).ids

        assert before == readable(cursor, "orders")
        assert elsewhere == readable(cursor, "mail")[1:]
        ((number, pid, seconds, application, state),) = holders(cursor)
        assert (topic_id("orders"), slow.connection.info.backend_pid) == (number, pid)
        assert ("web of the shop", "idle in transaction") == (application, state)
        assert 0.02 < seconds < 60
    assert [*before, *mine, *behind] == readable(cursor, "orders")
    assert [] == holders(cursor)


def test_a_prepared_transaction_holds_back_until_it_is_committed(cursor, new_cursor):
    """Though it is of no session any more; HOLDERS has it first, without one."""
    (room,) = cursor.execute("SHOW max_prepared_transactions").fetchone()
    if room == "0":
        pytest.skip("max_prepared_transactions is 0")
    (name,) = cursor.execute("SELECT quote_literal(current_database())").fetchone()
    publish(cursor, "orders", items(0))
    before = readable(cursor, "orders")
    other = new_cursor()
    other.execute("BEGIN")
    (mine,) = publish(other, "orders", items(1)).ids
    other.execute(f"PREPARE TRANSACTION {name}")
    try:
        other.connection.close()
        publish(cursor, "orders", items(2))
        assert before == readable(cursor, "orders")
        ((number, pid, seconds, _, _),) = holders(cursor)
        assert (topic_id("orders"), None, None) == (number, pid, seconds)
    finally:
        cursor.execute(f"COMMIT PREPARED {name}")
    assert [*before, mine, mine + 1] == readable(cursor, "orders")


def test_the_lock_is_taken_in_every_transaction_of_a_session(cursor):
    """After a commit, a rollback, and a COMMIT inside of a procedure."""
    publish(cursor, "orders", items(0))
    for end in ("COMMIT", "ROLLBACK"):
        cursor.execute("BEGIN")
        publish(cursor, "orders", items(1))
        assert 1 == len(cursor.execute(LOCKS, [keys.TOPICS]).fetchall())
        cursor.execute(end)
        assert [] == cursor.execute(LOCKS, [keys.TOPICS]).fetchall()
    cursor.execute("CREATE TEMP TABLE noted (low bigint, id bigint)")
    cursor.execute(
        """
        DO $$ BEGIN
            FOR n IN 1..3 LOOP
                WITH published AS (SELECT pgqueue_publish('orders', '1') AS id)
                INSERT INTO noted SELECT l.objid::bigint, published.id
                  FROM published LEFT JOIN pg_locks l
                    ON l.pid = pg_backend_pid() AND l.mode = 'ShareLock'
                   AND l.locktype = 'advisory';
                COMMIT;
            END LOOP;
        END $$
        """
    )
    rows = cursor.execute("SELECT low, id FROM noted ORDER BY id").fetchall()
    assert [row[1] - 1 for row in rows] == [row[0] for row in rows]
    assert 3 == len(rows)


def test_a_first_message_by_eight_at_once_makes_one_topic(new_cursor):
    """Nobody fails: those who come second wait for the first one's commit."""
    cursors = [new_cursor() for _ in range(8)]
    together = threading.Barrier(8)

    def first(number):
        together.wait(10)
        return publish(cursors[number], "brand-new", items(number, name="brand-new"))

    with ThreadPoolExecutor(8) as threads:
        stored = list(threads.map(first, range(8)))

    ids = sorted(each for one in stored for each in one.ids)
    assert 1 == Topic.objects.filter(name="brand-new").count()
    assert ids == list(Message.objects.order_by("id").values_list("id", flat=True))
    assert {topic_id("brand-new")} == set(
        Message.objects.values_list("topic_id", flat=True)
    )


def test_a_snapshot_without_the_topic_is_told_to_run_again(cursor, other_cursor):
    """In REPEATABLE READ, when another one made it meanwhile: SQLSTATE 40001."""
    other_cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    other_cursor.execute("SELECT 1")
    publish(cursor, "brand-new", items(1, name="brand-new"))
    with pytest.raises(psycopg.errors.SerializationFailure):
        publish(other_cursor, "brand-new", items(2, name="brand-new"))
    other_cursor.execute("ROLLBACK")
    assert 1 == len(publish(other_cursor, "brand-new", items(3, name="brand-new")).ids)


@pytest.fixture
def replica(cursor):
    """A standby of the suite's server, which streams from it."""
    info = cursor.connection.info
    if not (Path(info.host).parent / "data").is_dir():
        pytest.skip("a base backup is taken of the embedded server alone")
    folder = Path(tempfile.mkdtemp(prefix="pgq"))
    folder.chmod(0o755)
    try:
        backup = folder / "backup"
        make_folder_of_server_user(backup)
        done = run_as_server_user(
            [
                *(find_binaries().folder / "pg_basebackup", "-D", backup, "-R"),
                *("-c", "fast", "-d", f"host={info.host} user={info.user}"),
            ]
        )
        assert done.returncode == 0, done.stdout
        with Server(backup) as server:
            yield psycopg.conninfo.make_conninfo(server.url, dbname=info.dbname)
    finally:
        shutil.rmtree(folder)


@pytest.mark.slow
def test_a_replica_is_refused(cursor, new_cursor, replica):
    """It has the messages, and not the locks of those who publish."""
    publish(cursor, "orders", items(0))
    publisher = new_cursor()
    with (
        psycopg.connect(replica, autocommit=True) as connection,
        publisher.connection.transaction(),
    ):
        publish(publisher, "orders", items(1))
        (behind,) = publish(cursor, "orders", items(2)).ids
        copy = connection.cursor()
        wait_for(
            lambda: copy.execute(
                "SELECT 1 FROM pgqueue_message WHERE id = %s", [behind]
            ).fetchone(),
            what="the replica has the message",
        )
        assert [] == holders(copy)
        assert 1 == len(holders(cursor))
        with pytest.raises(
            psycopg.errors.ReadOnlySqlTransaction, match="known to the primary alone"
        ):
            horizons(copy)
