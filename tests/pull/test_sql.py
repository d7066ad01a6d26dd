"""The verbs in SQL: what they refuse, and what they cost in a large table."""

from __future__ import annotations

import threading

import psycopg
import pytest
from psycopg.types.json import Jsonb

pytestmark = pytest.mark.django_db(transaction=True)

# Pages that a receive of ten may read, its plans included.
PAGES_MAX = 1_500


@pytest.fixture
def declared(cursor):
    cursor.execute("SELECT pgqueue_declare_queue('sql', 60, 2)")
    return cursor


def receipts(cursor, n=10):
    cursor.execute("SELECT receipt FROM pgqueue_receive('sql', %s)", [n])
    return [receipt for (receipt,) in cursor.fetchall()]


@pytest.mark.parametrize(
    "call, words",
    [
        ("pgqueue_send('sql', '1', -1)", "from 0 to 31622400"),
        ("pgqueue_send('sql', '1', lane => 'a', dedup_key => 'b')", "one of them"),
        ("pgqueue_send('sql', '1', lane => repeat('a', 129))", "128 are the most"),
        ("pgqueue_send('sql', '1', priority => 101)", "from -100 to 100"),
        ("pgqueue_send_many('sql', '{}')", "no array of up to 10000"),
        ("pgqueue_send_many('sql', '[1]', lanes => '[]')", "as many lanes"),
        ("pgqueue_receive('sql', 1001)", "from 1 to 1000"),
        ("pgqueue_receive('sql', 1, 0.5)", "from 1 to 43200"),
        ("pgqueue_receive('nowhere')", "no pull queue is called nowhere"),
        ("pgqueue_ack('7')", "no receipts"),
        ("pgqueue_ack('7:1;DROP TABLE x')", "no receipts"),
        ("pgqueue_ack(NULL)", "no receipts"),
        ("pgqueue_nack('7:1', -1)", "from 0 to"),
        ("pgqueue_extend('7:1', NULL)", "from 1 to"),
    ],
)
def test_what_cannot_be_is_refused(declared, call, words):
    """Each error names the value and the limit, and nothing is stored."""
    with pytest.raises(psycopg.Error, match=words):
        declared.execute(f"SELECT {call}")
    assert (0,) == declared.execute("SELECT count(*) FROM pgqueue_job").fetchone()


def test_expired_and_cancelled_ones_are_nobodys(declared):
    """A receive that meets them archives them, and goes on to the next."""
    declared.execute("SELECT pgqueue_send('sql', '1', expires_seconds => 0)")
    declared.execute("SELECT pgqueue_send('sql', '2')")
    [second] = receipts(declared)
    declared.execute("SELECT pgqueue_send('sql', '3')")
    declared.execute(
        "UPDATE pgqueue_job SET cancel_requested_at = now(),"
        " visible_at = now() WHERE leased_by IS NOT NULL"
    )
    [third] = receipts(declared)
    states = "SELECT args -> 0, state FROM pgqueue_archived_job ORDER BY id"
    assert [(1, "expired"), (2, "cancelled")] == declared.execute(states).fetchall()
    assert second != third


def test_who_waits_in_a_transaction_holds_nobody_up(declared, new_cursor):
    """His lane and his message are passed over; the others are received meanwhile."""
    declared.execute("""SELECT pgqueue_send_many('sql', '[1, 2, 3]',
                                                 lanes => '["a", "a", "b"]')""")
    other = new_cursor()
    with other.connection.transaction():
        held = receipts(other, 1)
        rest = receipts(declared)
        assert 1 == len(rest)
        assert not {*held} & {*rest}
    declared.execute("SELECT pgqueue_ack(%s)", [held[0]])
    declared.execute("SELECT pgqueue_ack(%s)", [rest[0]])


def test_a_receive_costs_the_same_in_a_large_table(declared, unanalysed):
    """Beside 20,000 messages in 2,000 lanes and 20,000 in none, 1,000 are out."""
    declared.execute("SELECT pgqueue_declare_queue('sql', 60, 2)")
    for lanes in (None, [f"l{number % 2000}" for number in range(10_000)]):
        for _ in range(2):
            declared.execute(
                "SELECT count(*) FROM pgqueue_send_many('sql', %s, lanes => %s)",
                [Jsonb(list(range(10_000))), lanes and Jsonb(lanes)],
            )
    assert 1_000 == len(receipts(declared, 1_000))
    explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM {}"
    for call in ("pgqueue_receive('sql', 10)", "pgqueue_due_in('sql')"):
        declared.execute(explain.format(call))
        plan = declared.fetchone()[0][0]["Plan"]
        pages = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        assert PAGES_MAX >= pages, call


def test_the_loser_of_two_acks_is_told(declared, new_cursor):
    """He waits for the first, and then learns that his receipt is stale."""
    declared.execute("SELECT pgqueue_send('sql', '1')")
    [receipt] = receipts(declared)
    other, answers = new_cursor(), []
    with declared.connection.transaction():
        declared.execute("SELECT pgqueue_ack(%s)", [receipt])
        second = threading.Thread(
            target=lambda: answers.append(
                other.execute("SELECT pgqueue_ack(%s)", [receipt]).fetchone()[0]
            )
        )
        second.start()
    second.join(30)
    assert [{"done": 0, "stale": [receipt]}] == answers
