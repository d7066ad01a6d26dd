"""Installations that share a database hold back, and wait for, nobody of the others."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql

from django_pgqueue.log import horizon, subscriptions
from django_pgqueue.log.horizon import horizons
from django_pgqueue.log.publish import publish_one
from django_pgqueue.postgres import keys
from django_pgqueue.queues import workers
from django_pgqueue.schedules import store
from tests.log.installations import SCHEMAS, Connect, installations, to

__all__ = ["installations", "to"]

ONE, TWO = SCHEMAS
TOPIC_ID = "SELECT id FROM pgqueue_topic WHERE name = 'orders'"

LOCKS = {
    "leader": (workers.LOCK, keys.LEADER),
    "schedules": (store.LOCK, keys.SCHEDULES),
    "subscriptions": (subscriptions.LOCK, keys.SUBSCRIPTIONS),
}


def published(connection: psycopg.Connection) -> int:
    (message_id,) = publish_one(connection.cursor(), "orders", None, "1", "{}").ids
    return message_id


def bound(connection: psycopg.Connection) -> int:
    """Return up to which id the topic "orders" can be read."""
    (topic_id,) = connection.execute(TOPIC_ID).fetchone()
    return horizons(connection.cursor()).of(topic_id)


def held_by(connection: psycopg.Connection) -> list[int]:
    """Return who holds readers back, by their processes."""
    cursor = connection.execute(horizon.HOLDERS, {"class": keys.TOPICS})
    return [pid for _, pid, *_ in cursor]


def test_a_publisher_holds_back_no_reader_of_another_installation(to: Connect):
    """
    Though both have a topic of the same number, and locks of the same names, and the
    lock says an id that is behind.
    """
    one, two, reader = to(ONE), to(TWO), to(TWO)
    two.execute("SELECT setval('pgqueue_message_id_seq', 100000)")
    published(one), published(two)
    assert one.execute(TOPIC_ID).fetchone() == two.execute(TOPIC_ID).fetchone()
    with one.transaction():
        published(one)
        mine = published(two)
        assert mine == bound(reader)
        assert [] == held_by(reader)
        assert [one.info.backend_pid] == held_by(to(ONE))


def test_a_transaction_that_publishes_in_both_holds_back_the_readers_of_both(
    to: Connect,
):
    """Each from before its own first message there, whichever comes first; the ids of
    the one are far from those of the other."""
    to(ONE).execute("SELECT setval('pgqueue_message_id_seq', 5000)")
    for schema in SCHEMAS:
        published(to(schema))
    for order in (SCHEMAS, SCHEMAS[::-1]):
        publisher = to(ONE)
        mine = {}
        with publisher.transaction():
            for schema in order:
                path = sql.SQL("SET LOCAL search_path = {}")
                publisher.execute(path.format(sql.Identifier(schema)))
                mine[schema] = published(publisher)
            for schema in order:
                published(to(schema))
                assert bound(to(schema)) < mine[schema]
        for schema in order:
            assert bound(to(schema)) > mine[schema]


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_of_one_installation_is_free_in_the_other(to: Connect, name: str):
    """Of an election, and of what code declares; and held in its own."""
    statement, number = LOCKS[name]
    one = to(ONE)
    with one.transaction():
        assert (False,) != one.execute(statement, {"class": number}).fetchone()
        assert is_free(to(TWO), statement, number)
        assert not is_free(to(ONE), statement, number)


def is_free(connection: psycopg.Connection, statement: str, number: int) -> bool:
    connection.execute("SET lock_timeout = '300ms'")
    try:
        row = connection.execute(statement, {"class": number}).fetchone()
    except psycopg.errors.LockNotAvailable:
        return False
    return row != (False,)
