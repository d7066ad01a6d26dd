"""
"A zero-dependency Pub/Sub implementation on top of PostgreSQL", run.

docs/explanation/pub-sub-without-dependencies.md names these tests.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import psycopg
import pytest

PAGE = (
    Path(__file__).resolve().parents[2]
    / "docs/explanation/pub-sub-without-dependencies.md"
)

MESSAGES = """
CREATE TABLE messages (
    id bigserial PRIMARY KEY, status text NOT NULL DEFAULT 'pending',
    queue text NOT NULL DEFAULT 'worker',
    published_at timestamptz NOT NULL DEFAULT now(),
    deliver_at timestamptz NOT NULL DEFAULT now())
"""
TRIGGER = """
CREATE FUNCTION tell() RETURNS trigger AS $$ BEGIN
    PERFORM pg_notify('pubsub_messages',
        json_build_object('queue', NEW .queue, 'id', NEW .id)::text);
    RETURN NULL;
END $$ LANGUAGE plpgsql;
CREATE TRIGGER tell AFTER INSERT ON messages FOR EACH ROW EXECUTE PROCEDURE tell()
"""
NEXT = """
SELECT id FROM messages
 WHERE status = 'pending' AND queue = 'worker' AND deliver_at <= now()
 ORDER BY published_at LIMIT 1 FOR UPDATE SKIP LOCKED
"""


def test_the_trigger_notifies_once_for_each_row(session):
    """Their payloads differ, so PostgreSQL folds none; for later ones as well."""
    publisher, listener = session(), session()
    publisher.execute(MESSAGES)
    publisher.execute(TRIGGER)
    listener.execute("LISTEN pubsub_messages")
    publisher.execute("""
        INSERT INTO messages (deliver_at)
        SELECT now() + interval '1 hour' FROM generate_series(1, 3)""")

    heard = list(listener.connection.notifies(timeout=10, stop_after=3))
    assert 3 == len({each.payload for each in heard})


def test_a_message_is_one_client_s_while_the_transaction_is_open(session):
    """As promised, and no longer: a commit between two steps gives it away."""
    one, two = session(), session()
    one.execute(MESSAGES)
    one.execute("INSERT INTO messages DEFAULT VALUES")
    one.execute("BEGIN")
    assert [(1,)] == one.execute(NEXT).fetchall()
    assert [] == two.execute(NEXT).fetchall()
    one.execute("COMMIT")
    assert [(1,)] == two.execute(NEXT).fetchall()


def test_the_time_of_a_retry_cannot_be_added_to_messages_that_wait(session):
    """The column is NOT NULL and has no default."""
    cursor = session()
    cursor.execute(
        "CREATE TABLE messages (id bigserial); INSERT INTO messages VALUES (1)"
    )
    with pytest.raises(psycopg.Error, match="contains null values") as caught:
        cursor.execute("""ALTER TABLE messages
            ADD COLUMN message_deliver_at timestamp with time zone NOT NULL""")
    assert "23502" == caught.value.sqlstate


def test_the_page_names_every_test():
    """And no other."""
    tests = {name for name in vars(sys.modules[__name__]) if name.startswith("test_")}
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text("utf-8")))
    assert tests - {"test_the_page_names_every_test"} == named
