"""
"Build your own SQS or Kafka with Postgres", run: what each of its queries does.

docs/explanation/build-your-own-sqs-or-kafka.md says so, query by query, and names
these tests. Tables are cut down to the columns that matter; the clauses that decide
are those of the article.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import psycopg
import pytest

from tests.conftest import Cursor

PAGE = (
    Path(__file__).resolve().parents[2]
    / "docs/explanation/build-your-own-sqs-or-kafka.md"
)

QUEUE = """
CREATE TABLE messages (
    seq serial PRIMARY KEY, data jsonb NOT NULL DEFAULT '{}',
    not_visible_until timestamp, deliver_count integer NOT NULL DEFAULT 0,
    inserted_at timestamp NOT NULL DEFAULT now())
"""
AVAILABLE = "not_visible_until IS NULL OR not_visible_until <= now()"
RECEIVE = f"""
WITH available AS (
    SELECT seq FROM messages WHERE {AVAILABLE}
     ORDER BY inserted_at LIMIT %s FOR UPDATE SKIP LOCKED)
UPDATE messages m SET not_visible_until = now() + %s::interval,
                      deliver_count = deliver_count + 1
  FROM available a WHERE m.seq = a.seq RETURNING m.seq
"""

FIFO = f"{QUEUE}; ALTER TABLE messages ADD COLUMN key text NOT NULL"
RECEIVE_FIFO = """
WITH processing AS (SELECT key FROM messages WHERE not_visible_until >= now()),
     heads AS (SELECT DISTINCT ON (key) seq FROM messages
                WHERE key NOT IN (SELECT key FROM processing)
                ORDER BY key, inserted_at LIMIT %s),
     next AS (SELECT m.* FROM messages m JOIN heads h ON m.seq = h.seq
               WHERE m.not_visible_until IS NULL OR m.not_visible_until <= now()
                 FOR UPDATE SKIP LOCKED)
UPDATE messages m SET not_visible_until = now() + %s::interval,
                      deliver_count = m.deliver_count + 1
  FROM next n WHERE m.seq = n.seq RETURNING m.seq
"""

# As the text means it: one row for each key.
HEADS = "CREATE TABLE message_key_seqs (key text PRIMARY KEY, seq bigint NOT NULL)"
RAISE_HEADS = """
INSERT INTO message_key_seqs (key, seq)
VALUES (unnest(%s::text[]), unnest(%s::bigint[]))
    ON CONFLICT (key) DO UPDATE SET seq = least(message_key_seqs.seq, excluded.seq)
"""
RECEIVE_HEADS = """
SELECT m.seq FROM messages m JOIN message_key_seqs h ON m.key = h.key
 WHERE m.seq = h.seq AND (m.not_visible_until IS NULL OR m.not_visible_until <= now())
 ORDER BY m.inserted_at LIMIT 10 FOR UPDATE SKIP LOCKED
"""

STREAM = """
CREATE SEQUENCE messages_seq;
CREATE TABLE messages (
    seq bigint NOT NULL DEFAULT nextval('messages_seq'), key text NOT NULL,
    inserted_at timestamp NOT NULL DEFAULT now(),
    partition int GENERATED ALWAYS AS (abs(hashtext(key) % 10)) STORED,
    PRIMARY KEY (seq, partition));
"""
OFFSETS = """
CREATE TABLE consumer_group_offsets (
    consumer_name text, partition int NOT NULL, seq bigint NOT NULL DEFAULT 0,
    updated_at timestamp NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer_name, partition))
"""
# With ORDER BY where PostgreSQL wants it.
READ = """
WITH locked AS (SELECT * FROM consumer_group_offsets WHERE consumer_name = 'c'
                 ORDER BY updated_at FOR UPDATE SKIP LOCKED LIMIT 1)
SELECT l.partition, m.seq FROM locked l
  LEFT JOIN messages m ON m.partition = l.partition AND m.seq > l.seq
 ORDER BY m.seq LIMIT %s
"""

OUTBOX = """
CREATE TABLE messages (seq bigserial PRIMARY KEY, key text NOT NULL);
CREATE TABLE consumer_messages (
    id serial PRIMARY KEY, consumer_name text NOT NULL, message_seq text NOT NULL,
    not_visible_until timestamp);
CREATE UNIQUE INDEX ON consumer_messages (consumer_name, message_seq);
"""
# With the cast that the join needs, and without DISTINCT.
RECEIVE_OUTBOX = """
WITH available AS (
    SELECT cm.id, m.seq FROM consumer_messages cm
      JOIN messages m ON cm.message_seq::bigint = m.seq
     WHERE cm.consumer_name = %s
       AND (cm.not_visible_until IS NULL OR cm.not_visible_until <= now())
     ORDER BY m.seq LIMIT %s FOR UPDATE SKIP LOCKED)
UPDATE consumer_messages cm SET not_visible_until = now() + interval '30 s'
  FROM available a WHERE cm.id = a.id RETURNING a.seq
"""
FAN_OUT = """
WITH new AS (INSERT INTO messages (key) VALUES (%s) RETURNING seq)
INSERT INTO consumer_messages (consumer_name, message_seq)
SELECT unnest(%s::text[]), new.seq FROM new RETURNING message_seq::bigint
"""


def refused(cursor: Cursor, sqlstate: str, sql: str, parameters: object = None) -> None:
    """Run *sql*, which PostgreSQL refuses with this code; the transaction is left."""
    with (
        pytest.raises(psycopg.Error, match=r"\w") as caught,
        cursor.connection.transaction(),
    ):
        cursor.execute(sql, parameters)
    assert sqlstate == caught.value.sqlstate


def first(cursor: Cursor, sql: str, parameters: object = None) -> list[object]:
    """Return the first column of what *sql* returns."""
    return [row[0] for row in cursor.execute(sql, parameters)]


def insert(cursor: Cursor, *keys: str) -> list[object]:
    """Insert a message for each key, in a transaction each, and return their seqs."""
    return [
        first(cursor, "INSERT INTO messages (key) VALUES (%s) RETURNING seq", [key])[0]
        for key in keys
    ]


def plan(cursor: Cursor, sql: str) -> str:
    return "\n".join(map(str, first(cursor, f"EXPLAIN (COSTS OFF) {sql}")))


# A queue like SQS --------------------------------------------------------------------


def test_serial_ends_at_2_147_483_647(session):
    """serial is four bytes: the queue takes no message after it."""
    cursor = session()
    cursor.execute(QUEUE)
    cursor.execute("SELECT setval('messages_seq_seq', 2147483647)")

    refused(cursor, "2200H", "INSERT INTO messages DEFAULT VALUES")


def test_timestamps_without_zone_break_leases(session):
    """A lease that a session in Los Angeles takes has ended for one in UTC."""
    west, utc = session(), session()
    west.execute("SET TimeZone = 'America/Los_Angeles'")
    west.execute(QUEUE)
    west.execute("INSERT INTO messages DEFAULT VALUES")

    assert [1] == first(west, RECEIVE, [10, "1 hour"])
    assert [] == first(west, RECEIVE, [10, "1 hour"])
    assert [1] == first(utc, RECEIVE, [10, "1 hour"])


def test_receive_shares_out_messages(session):
    """Two transactions that receive at a time get different messages: as promised."""
    one, two = session(), session()
    one.execute(QUEUE)
    one.execute("INSERT INTO messages (data) SELECT '{}' FROM generate_series(1, 4)")
    one.execute("BEGIN")

    mine, theirs = (set(first(each, RECEIVE, [2, "1 min"])) for each in (one, two))
    assert ({1, 2, 3, 4}, 2) == (mine | theirs, len(mine))


def test_receive_sorts_the_whole_backlog(session):
    """No index gives the order, so each call reads and sorts what waits."""
    cursor = session()
    cursor.execute(QUEUE)
    cursor.execute("CREATE INDEX ON messages (not_visible_until, inserted_at)")
    cursor.execute(
        "INSERT INTO messages (data) SELECT '{}' FROM generate_series(1,2e4)"
    )
    cursor.execute("ANALYZE messages")

    said = plan(
        cursor,
        f"SELECT seq FROM messages WHERE {AVAILABLE} ORDER BY inserted_at LIMIT 10",
    )
    assert "Sort" in said
    assert "Seq Scan" in said


def test_inserted_at_is_no_order(session):
    """One transaction's share it; a longer one's stand before what was read."""
    slow, quick = session(), session()
    slow.execute(QUEUE)
    slow.execute("BEGIN")
    slow.execute("SELECT now()")
    quick.execute("INSERT INTO messages DEFAULT VALUES")
    read = first(quick, "SELECT seq FROM messages ORDER BY inserted_at")
    slow.execute("INSERT INTO messages DEFAULT VALUES")
    slow.execute("INSERT INTO messages DEFAULT VALUES")
    slow.execute("COMMIT")

    rows = quick.execute("SELECT seq, inserted_at FROM messages ORDER BY 2, 1")
    order, times = zip(*rows.fetchall(), strict=True)
    assert ([1], (2, 3, 1), times[0]) == (read, order, times[1])


def test_a_parameter_with_a_column_s_name_is_the_column(session):
    """In a SQL function the column wins, so the lease is never set."""
    cursor = session()
    cursor.execute(QUEUE)
    cursor.execute("INSERT INTO messages DEFAULT VALUES")
    cursor.execute("""
        CREATE FUNCTION receive_messages(batch_size int, not_visible_until timestamp)
        RETURNS TABLE (id int) LANGUAGE sql AS $$
            UPDATE messages SET not_visible_until = not_visible_until
             WHERE not_visible_until IS NULL RETURNING seq $$""")

    call = "SELECT receive_messages(1, now()::timestamp + interval '1 hour')"
    assert [[1], [1]] == [first(cursor, call), first(cursor, call)]


def test_an_ack_by_seq_deletes_what_another_one_works_at(session):
    """A worker whose lease has ended acks, and the message is gone under its heir."""
    late, heir = session(), session()
    late.execute(QUEUE)
    late.execute("INSERT INTO messages DEFAULT VALUES")
    assert [1] == first(late, RECEIVE, [1, "0 s"])
    assert [1] == first(heir, RECEIVE, [1, "1 hour"])

    late.execute("DELETE FROM messages WHERE seq = ANY(%s)", [[1]])
    assert 1 == late.rowcount
    assert [] == first(heir, "SELECT seq FROM messages")


# FIFO --------------------------------------------------------------------------------


def test_a_key_cannot_be_added_to_messages_that_wait(session):
    """NOT NULL without a default: only to an empty table."""
    cursor = session()
    cursor.execute(QUEUE)
    cursor.execute("INSERT INTO messages DEFAULT VALUES")

    refused(cursor, "23502", "ALTER TABLE messages ADD COLUMN key text NOT NULL")


def test_a_null_key_in_process_stops_the_queue(session):
    """NOT IN a list with a NULL is never true. Here NOT NULL alone prevents it."""
    cursor = session()
    cursor.execute(FIFO)
    cursor.execute("ALTER TABLE messages ALTER key DROP NOT NULL")
    insert(cursor, "a", "b")
    cursor.execute(
        "INSERT INTO messages (not_visible_until) VALUES (now() + interval '1 h')"
    )

    assert [] == first(cursor, RECEIVE_FIFO, [10, "1 min"])


def test_fifo_takes_the_first_keys_of_the_alphabet(session):
    """LIMIT stands behind ORDER BY key: the last keys starve behind busy ones."""
    cursor = session()
    cursor.execute(FIFO)
    insert(cursor, "z", *"ababab")
    served = []
    for _ in range(3):
        served += first(cursor, RECEIVE_FIFO, [2, "1 min"])
        cursor.execute("DELETE FROM messages WHERE not_visible_until IS NOT NULL")

    assert {2, 3, 4, 5, 6, 7} == set(served)


def test_fifo_shares_out_less_than_a_batch(session):
    """Two that receive at a time choose the same heads: the second gets nothing."""
    one, two = session(), session()
    one.execute(FIFO)
    insert(one, *"abcd")
    one.execute("BEGIN")

    assert 2 == len(first(one, RECEIVE_FIFO, [2, "1 min"]))
    assert [] == first(two, RECEIVE_FIFO, [2, "1 min"])


def test_fifo_turns_messages_of_one_transaction_around(session):
    """They share inserted_at; a first one that is tried again is the second then."""
    cursor = session()
    cursor.execute(FIFO)
    cursor.execute("INSERT INTO messages (key) VALUES ('k'), ('k')")

    tries = [first(cursor, RECEIVE_FIFO, [1, "0 s"]) for _ in range(2)]
    assert [[1], [2]] == tries


def test_the_head_table_cannot_be_upserted(session):
    """Its key is (key, seq), and the conflict is on (key)."""
    cursor = session()
    cursor.execute("""
        CREATE TABLE message_key_seqs (
            key text NOT NULL, seq bigint NOT NULL, PRIMARY KEY (key, seq))""")

    refused(cursor, "42P10", RAISE_HEADS, [["a"], [1]])


def test_the_head_table_takes_a_key_once_in_a_batch(session):
    """Two messages of one key in one call cannot be upserted."""
    cursor = session()
    cursor.execute(HEADS)

    refused(cursor, "21000", RAISE_HEADS, [["a", "a"], [1, 2]])


def test_receiving_by_heads_locks_out_publishers(session):
    """FOR UPDATE locks the head's row too, so a publish of that key waits."""
    reader, publisher = session(), session()
    reader.execute(FIFO)
    reader.execute(HEADS)
    insert(reader, "a")
    reader.execute(RAISE_HEADS, [["a"], [1]])
    reader.execute("BEGIN")
    assert [1] == first(reader, RECEIVE_HEADS)

    publisher.execute("SET lock_timeout = '20ms'")
    refused(publisher, "55P03", RAISE_HEADS, [["a"], [2]])


def test_an_ack_by_heads_loses_a_message(session):
    """What is published between the look for the next head and its removal has none."""
    worker, publisher = session(), session()
    worker.execute(FIFO)
    worker.execute(HEADS)
    insert(worker, "a")
    worker.execute(RAISE_HEADS, [["a"], [1]])

    worker.execute("BEGIN")
    worker.execute("DELETE FROM messages WHERE seq = 1")
    left = "SELECT key, min(seq) FROM messages WHERE key = 'a' GROUP BY key"
    assert [] == first(worker, left)
    publisher.execute("BEGIN")
    insert(publisher, "a")
    publisher.execute(RAISE_HEADS, [["a"], [2]])
    publisher.execute("COMMIT")
    worker.execute("DELETE FROM message_key_seqs WHERE key = 'a'")
    worker.execute("COMMIT")

    assert ([2], []) == (
        first(worker, "SELECT seq FROM messages"),
        first(worker, RECEIVE_HEADS),
    )


def test_a_dead_letter_has_no_time_to_be_inserted_with(session):
    """The table wants inserted_at, has no default, and the move does not name it."""
    cursor = session()
    cursor.execute(QUEUE)
    cursor.execute("INSERT INTO messages (deliver_count) VALUES (9)")
    cursor.execute("""
        CREATE TABLE dead_messages (
            id serial PRIMARY KEY, message_seq integer NOT NULL,
            inserted_at timestamp NOT NULL)""")

    refused(
        cursor,
        "23502",
        """WITH dead AS (DELETE FROM messages WHERE deliver_count >= 5 RETURNING seq)
           INSERT INTO dead_messages (message_seq) SELECT seq FROM dead""",
    )


# A log like Kafka --------------------------------------------------------------------


def test_a_consumer_has_one_partition(session):
    """The primary key of its offsets is the name alone."""
    cursor = session()
    cursor.execute("""
        CREATE TABLE consumer_group_offsets (
            consumer_name text PRIMARY KEY, partition int NOT NULL, seq bigint)""")
    cursor.execute("INSERT INTO consumer_group_offsets VALUES ('c', 0, 0)")

    refused(cursor, "23505", "INSERT INTO consumer_group_offsets VALUES ('c', 1, 0)")


def test_the_partition_of_a_key_is_computed(session):
    """From 0 to 9, whatever the sign of the hash: as promised."""
    cursor = session()
    cursor.execute(STREAM)
    cursor.execute("INSERT INTO messages (key) SELECT n FROM generate_series(1, 200) n")

    partitions = first(cursor, "SELECT DISTINCT partition FROM messages")
    assert set(range(10)) == set(partitions)


def test_a_seq_may_stand_there_twice(session):
    """The primary key is (seq, partition), so a seq that is written by hand may."""
    cursor = session()
    cursor.execute(STREAM)
    cursor.execute(
        "INSERT INTO messages (seq, key) SELECT 7, n FROM generate_series(1, 2) n"
    )

    assert [7, 7] == first(cursor, "SELECT seq FROM messages")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM messages WHERE partition = 1 AND seq > 0 LIMIT 3 ORDER BY seq",
        """SELECT * FROM consumer_group_offsets FOR UPDATE SKIP LOCKED LIMIT 1
            ORDER BY updated_at""",
    ],
    ids=["messages", "offsets"],
)
def test_limit_does_not_stand_before_order_by(session, sql):
    """Both reads of the log are syntax errors."""
    cursor = session()
    cursor.execute(STREAM)
    cursor.execute(OFFSETS)

    refused(cursor, "42601", sql)


def test_an_empty_partition_keeps_its_turn(session):
    """Nothing to ack, so its updated_at stays the oldest: the others are never read."""
    cursor = session()
    cursor.execute(STREAM)
    cursor.execute(OFFSETS)
    (seq,) = insert(cursor, "a")
    (busy,) = first(cursor, "SELECT partition FROM messages")
    for partition in ((busy + 1) % 10, busy):
        cursor.execute(
            "INSERT INTO consumer_group_offsets VALUES ('c', %s)", [partition]
        )

    reads = [cursor.execute(READ, [10]).fetchall() for _ in range(3)]
    assert 3 * [[((busy + 1) % 10, None)]] == reads
    assert [seq] == first(cursor, "SELECT seq FROM messages")


def test_an_open_batch_holds_back_vacuum(session):
    """Its transaction is the oldest one that every other snapshot has to mind."""
    reader, other = session(), session()
    reader.execute(STREAM)
    reader.execute(OFFSETS)
    reader.execute("INSERT INTO consumer_group_offsets VALUES ('c', 0)")
    reader.execute("BEGIN")
    reader.execute(READ, [10])
    (mine,) = first(reader, "SELECT pg_current_xact_id_if_assigned()::text::bigint")
    for _ in range(5):
        other.execute("CREATE TABLE t (); DROP TABLE t")

    oldest = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
    assert [mine] == first(other, oldest)


def test_a_statement_timeout_does_not_end_a_batch(session):
    """It counts within a statement; between two of them nothing does."""
    reader, other = session(), session()
    reader.execute(OFFSETS)
    reader.execute("INSERT INTO consumer_group_offsets VALUES ('c', 0)")
    reader.execute("BEGIN")
    reader.execute("SET LOCAL statement_timeout = '5ms'")
    locked = "SELECT partition FROM consumer_group_offsets FOR UPDATE SKIP LOCKED"
    assert [0] == first(reader, locked)
    other.execute("SELECT pg_sleep(0.02)")

    assert [] == first(other, locked)


def test_a_late_ack_turns_the_offset_back(session):
    """With a time instead of the lock, as the article suggests, nothing tells them."""
    late, heir = session(), session()
    late.execute(OFFSETS)
    late.execute("INSERT INTO consumer_group_offsets VALUES ('c', 0)")
    ack = "UPDATE consumer_group_offsets SET seq = %s WHERE partition = 0 RETURNING seq"

    assert ([20], [10]) == (first(heir, ack, [20]), first(late, ack, [10]))


def test_an_offset_skips_what_commits_late(session):
    """A lower seq that commits after a higher one was read is never read."""
    slow, reader = session(), session()
    slow.execute(STREAM)
    slow.execute("BEGIN")
    insert(slow, "a")
    insert(reader, "a")

    after = "SELECT seq FROM messages WHERE seq > %s ORDER BY seq"
    (offset,) = first(reader, after, [0])
    slow.execute("COMMIT")
    assert (2, []) == (offset, first(reader, after, [offset]))
    assert [1, 2] == first(reader, after, [0])


def test_perform_is_no_sql(session):
    """It is PL/pgSQL's: the guard of the inserts cannot be called so."""
    cursor = session()

    refused(cursor, "42601", "PERFORM register_sequence_transaction('messages_seq')")


def test_a_strict_bound_keeps_the_newest_message(session):
    """If max_safe_seq() is the highest that is safe, "<" waits for the next one."""
    cursor = session()
    cursor.execute(STREAM)
    insert(cursor, "a", "a")

    highest = "(SELECT max(seq) FROM messages)"
    below = f"SELECT seq FROM messages WHERE seq > 0 AND seq < {highest}"
    assert [1] == first(cursor, below)


def test_another_partition_count_moves_keys(session):
    """Of the keys in one partition of ten, few are in the same one of eleven."""
    cursor = session()
    cursor.execute(STREAM)
    cursor.execute("INSERT INTO messages (key) SELECT n FROM generate_series(1, 500) n")

    moved = """SELECT count(*) FILTER (WHERE partition <> abs(hashtext(key) % 11)) > 400
                 FROM messages"""
    assert [True] == first(cursor, moved)


def test_a_hash_partitioned_log_needs_another_key(session):
    """A primary key has to contain the column that partitions."""
    cursor = session()

    refused(
        cursor,
        "0A000",
        """CREATE TABLE messages (seq bigint, key text, PRIMARY KEY (seq))
           PARTITION BY HASH (key)""",
    )


def test_a_hash_partitioned_log_has_no_partition_to_ask_for(session):
    """The column is gone, and an expression in its place is looked for everywhere."""
    cursor = session()
    cursor.execute("""
        CREATE TABLE messages (seq bigint, key text, PRIMARY KEY (seq, key))
        PARTITION BY HASH (key)""")
    for n in range(10):
        cursor.execute(
            f"CREATE TABLE messages_{n} PARTITION OF messages"
            f" FOR VALUES WITH (MODULUS 10, REMAINDER {n})"
        )

    refused(cursor, "42703", "SELECT seq FROM messages WHERE partition = 1 AND seq > 0")
    said = plan(
        cursor, "SELECT seq FROM messages WHERE abs(hashtext(key) % 10) = 1 AND seq > 0"
    )
    assert 10 == len(set(re.findall(r"messages_\d", said)))


def test_batches_of_a_function_are_one_transaction(session):
    """Its pauses free nothing: the first batch comes back with the last."""
    cursor = session()
    cursor.execute(STREAM)
    cursor.execute("INSERT INTO messages (key) SELECT n FROM generate_series(1, 30) n")
    cursor.execute("""
        CREATE FUNCTION batch_delete(batch_size int, fails boolean) RETURNS int AS $$
        DECLARE total int := 0; deleted int;
        BEGIN
            LOOP
                DELETE FROM messages WHERE ctid IN
                    (SELECT ctid FROM messages LIMIT batch_size);
                GET DIAGNOSTICS deleted = ROW_COUNT;
                total := total + deleted;
                EXIT WHEN deleted < batch_size;
                PERFORM pg_sleep(0.001);
            END LOOP;
            IF fails THEN RAISE EXCEPTION 'after % rows', total; END IF;
            RETURN total;
        END $$ LANGUAGE plpgsql""")

    refused(cursor, "P0001", "SELECT batch_delete(7, true)")
    assert [30] == first(cursor, "SELECT count(*) FROM messages")
    assert [30] == first(cursor, "SELECT batch_delete(7, false)")


# A log read like a queue -------------------------------------------------------------


def test_the_index_is_on_another_table(session):
    """consumers_messages is not consumer_messages."""
    cursor = session()
    cursor.execute(OUTBOX)

    refused(cursor, "42P01", "CREATE INDEX ON consumers_messages (message_seq)")


def test_each_consumer_gets_its_row(session):
    """In the statement that inserts the message: as promised."""
    cursor = session()
    cursor.execute(OUTBOX)
    cursor.execute(FAN_OUT, ["k", ["a", "b"]])

    rows = "SELECT consumer_name, message_seq FROM consumer_messages"
    assert [("a", "1"), ("b", "1")] == sorted(cursor.execute(rows))


@pytest.mark.parametrize(
    "sqlstate, sql",
    [
        (
            "42601",
            """SELECT cm.id FROM consumer_messages cm
                WHERE (cm.not_visible_until IS NULL
                       OR cm.not_visible_until <= now())) ORDER BY 1""",
        ),
        (
            "42883",
            """SELECT cm.id FROM consumer_messages cm
                 JOIN messages m ON cm.message_seq = m.seq""",
        ),
        (
            "0A000",
            """SELECT DISTINCT ON (m.key) cm.id FROM consumer_messages cm
                 JOIN messages m ON cm.message_seq::bigint = m.seq
                ORDER BY m.key, m.seq DESC FOR UPDATE SKIP LOCKED""",
        ),
    ],
    ids=["parenthesis", "text = bigint", "distinct and lock"],
)
def test_a_consumer_cannot_receive(session, sqlstate, sql):
    """Three errors, of which each shows when the one before is corrected."""
    cursor = session()
    cursor.execute(OUTBOX)

    refused(cursor, sqlstate, sql)


def test_a_consumer_receives_the_newest_first(session):
    """seq DESC chooses each key's last message, of those that wait."""
    cursor = session()
    cursor.execute(OUTBOX)
    for _ in range(3):
        cursor.execute(FAN_OUT, ["k", ["c"]])

    newest = """SELECT DISTINCT ON (m.key) m.seq FROM consumer_messages cm
                  JOIN messages m ON cm.message_seq::bigint = m.seq
                 ORDER BY m.key, m.seq DESC"""
    assert [3] == first(cursor, newest)


def test_a_key_is_worked_at_twice_at_a_time(session):
    """Nothing leaves out the keys of messages that are with a worker."""
    one, two = session(), session()
    one.execute(OUTBOX)
    for _ in range(2):
        one.execute(FAN_OUT, ["k", ["c"]])

    taken = [first(each, RECEIVE_OUTBOX, ["c", 1]) for each in (one, two)]
    assert [[1], [2]] == taken


def test_consumers_lock_messages_of_each_other(session):
    """FOR UPDATE over a join locks both tables, and SKIP LOCKED leaves them out."""
    one, two = session(), session()
    one.execute(OUTBOX)
    one.execute(FAN_OUT, ["k", ["a", "b"]])
    one.execute("BEGIN")

    assert [1] == first(one, RECEIVE_OUTBOX, ["a", 10])
    assert [] == first(two, RECEIVE_OUTBOX, ["b", 10])


def test_the_back_fill_names_a_table_as_a_column(session):
    """The conflict is on (consumer_name, message_seq)."""
    cursor = session()
    cursor.execute(OUTBOX)
    fill = """INSERT INTO consumer_messages (consumer_name, message_seq)
              SELECT 'new', seq FROM messages ON CONFLICT ({}) DO NOTHING"""

    refused(cursor, "42703", fill.format("consumer_messages, seq"))
    cursor.execute(fill.format("consumer_name, message_seq"))


def test_a_back_fill_misses_what_commits_late(session):
    """A publisher that does not know the new consumer, and commits after the fill."""
    slow, other = session(), session()
    slow.execute(OUTBOX)
    slow.execute("BEGIN")
    slow.execute(FAN_OUT, ["k", ["old"]])
    other.execute(FAN_OUT, ["k", ["old", "new"]])
    other.execute("""
        INSERT INTO consumer_messages (consumer_name, message_seq)
        SELECT 'new', seq FROM messages WHERE seq <= (SELECT max(seq) FROM messages)
            ON CONFLICT DO NOTHING""")
    slow.execute("COMMIT")

    mine = (
        "SELECT message_seq FROM consumer_messages WHERE consumer_name = %s ORDER BY 1"
    )
    assert (["1", "2"], ["2"]) == (
        first(other, mine, ["old"]),
        first(other, mine, ["new"]),
    )


def test_a_back_fill_repeats_what_was_acked(session):
    """An ack deletes the row, so there is no conflict any more."""
    cursor = session()
    cursor.execute(OUTBOX)
    cursor.execute(FAN_OUT, ["k", ["new"]])
    assert [1] == first(cursor, RECEIVE_OUTBOX, ["new", 1])
    cursor.execute("DELETE FROM consumer_messages")
    cursor.execute("""
        INSERT INTO consumer_messages (consumer_name, message_seq)
        SELECT 'new', seq FROM messages ON CONFLICT DO NOTHING""")

    assert [1] == first(cursor, RECEIVE_OUTBOX, ["new", 1])


def test_offsets_that_hand_out_are_taken_in_turn(session):
    """Rows made just in time: one worker at a time moves the consumer's offset."""
    one, two = session(), session()
    one.execute("CREATE TABLE consumer_offsets (consumer_name text, seq bigint)")
    one.execute("INSERT INTO consumer_offsets VALUES ('c', 0)")
    one.execute("BEGIN")
    pull = "UPDATE consumer_offsets SET seq = seq + 10 WHERE consumer_name = 'c'"
    one.execute(pull)

    two.execute("SET lock_timeout = '20ms'")
    refused(two, "55P03", pull)


# The page ----------------------------------------------------------------------------


def test_the_page_names_every_test():
    """And no other; with the code of each error that they provoke."""
    page = PAGE.read_text("utf-8")
    module = sys.modules[__name__]
    tests = {name for name in vars(module) if name.startswith("test_")}
    named = set(re.findall(r"`(test_\w+)`", page))
    code = r"(?=[A-Z]*\d)[0-9A-Z]{5}"
    codes = set(re.findall(f'"({code})"', inspect.getsource(module)))

    assert tests - {"test_the_page_names_every_test"} == named
    assert codes == set(re.findall(rf"\b{code}\b", page))
