"""pgqueue_producer, of roles.sql: enqueues and publishes, and nothing else."""

from __future__ import annotations

import re

import pytest
from django.db import ProgrammingError, connections, transaction

from django_pgqueue import (
    Unique,
    chord,
    group,
    publish,
    publish_many,
)
from django_pgqueue.topics.publish import message
from tests.app.lane_tasks import limited, step
from tests.app.tasks import add, echo, fails_once, noop
from tests.places.roles import ROLES

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "queue"])

UNIQUE = [
    Unique(),
    Unique(while_="queued|running"),
    Unique(conflict="replace"),
    Unique(conflict="reschedule"),
    Unique(period="1h"),
]

NO_ECHO = """
ALTER TABLE pgqueue_job ADD CONSTRAINT no_echo CHECK (task <> 'tests.app.tasks.echo')
  NOT VALID
"""

SUBSCRIBE = """
INSERT INTO pgqueue_subscription (topic, pattern, task)
VALUES ('orders', 'orders.paid', 't')
"""

# What the file has in a comment.
(GRANT,) = re.findall(
    r"^-- (GRANT SELECT .*;)$", ROLES.read_text("utf-8"), re.MULTILINE
)
REVOKE = GRANT.replace("GRANT", "REVOKE").replace(" TO ", " FROM ")


@pytest.fixture
def producer(log_in):
    """The alias of a session of it."""
    return log_in("producer")


@pytest.fixture
def owner(place):
    with place.connect() as owner:
        yield owner


def count(owner, table="pgqueue_job"):
    return owner.execute(f"SELECT count(*)::int FROM {table}").fetchone()[0]


def test_a_call_stands_for_others(producer, owner):
    """
    One by one, many at once, and in a transaction; whatever the rule.

    A call that meets a late job is written down once; what expired gives its key away.
    """
    for number, unique in enumerate(UNIQUE):
        call = noop.using(unique=unique)
        for _ in range(2):
            call.delay(number)
        call.bulk([(number,), (number,)])
        with transaction.atomic(using=producer):
            call.delay(number)
    assert len(UNIQUE) == count(owner)

    owner.execute("TRUNCATE pgqueue_job CASCADE")
    call = noop.using(unique=Unique())
    call.delay(1)
    owner.execute("UPDATE pgqueue_job SET visible_at = visible_at - interval '1 h'")
    for _ in range(2):
        with transaction.atomic(using=producer):
            call.delay(1)
    assert (1, 1) == (count(owner), count(owner, "pgqueue_dedup_call"))

    owner.execute("UPDATE pgqueue_job SET expires_at = enqueued_at")
    call.delay(1)
    assert 2 == count(owner)


def test_it_publishes_to_subscribers_and_into_a_day_that_nobody_has_made(
    producer, owner
):
    """A new topic, and a known one."""
    publish("orders.paid", {"id": 1}, key="a")
    owner.execute(SUBSCRIBE)
    today = owner.execute(
        "SELECT 'pgqueue_message_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')"
    ).fetchone()[0]
    owner.execute(f"DROP TABLE {today}")
    with transaction.atomic(using=producer):
        publish("orders.paid", {"id": 2})

    assert (1, 1) == (count(owner, "pgqueue_message"), count(owner))


def test_it_writes_captured_rows_with_the_same_rights(producer, owner):
    """The trigger runs as the writer: without them, the write fails."""
    said = """{"name": "orders", "on": ["insert"], "columns": null, "without": [],
        "when": null, "wakes": "on_commit", "bytes_max": 20}"""
    table = owner.execute(
        "SELECT format('%s.shop_order', relnamespace::regnamespace) FROM pg_class"
        " WHERE oid = 'pgqueue_job'::regclass"
    ).fetchone()[0]
    owner.execute(
        f"""CREATE TABLE {table} (id integer PRIMARY KEY);
            CREATE TRIGGER captures AFTER INSERT ON {table}
                REFERENCING NEW TABLE AS pgqueue_new
                FOR EACH STATEMENT EXECUTE FUNCTION pgqueue_capture('{said}');
            GRANT INSERT ON {table} TO pgqueue_producer"""
    )
    try:
        with connections[producer].cursor() as cursor:
            cursor.execute(f"INSERT INTO {table} VALUES (1)")
            assert 1 == count(owner, "pgqueue_message")
            owner.execute(SUBSCRIBE.replace("orders.paid", "orders"))
            with pytest.raises(ProgrammingError, match="permission denied for table"):
                cursor.execute(f"INSERT INTO {table} VALUES (2)")
            owner.execute(GRANT)
            cursor.execute(f"INSERT INTO {table} VALUES (2)")
        assert (2, 1) == (count(owner, "pgqueue_message"), count(owner))
    finally:
        owner.execute(REVOKE)
        owner.execute(f"DROP TABLE {table}")


def test_it_publishes_many_once_it_may_read_messages(producer, owner):
    """Refused by the file as it is; granted by the line that it has in a comment."""
    owner.execute(SUBSCRIBE)
    many = [message("orders.paid", {}), message("a.b.c.d.e.f.g.h", {})]
    with pytest.raises(ProgrammingError, match="denied for table pgqueue_message"):
        publish_many(many)

    owner.execute(GRANT)
    try:
        publish_many(many)
    finally:
        owner.execute(REVOKE)
    assert (2, 1) == (count(owner, "pgqueue_message"), count(owner))


def test_it_starts_workflows(producer, owner):
    """Of every shape, also one that gathers nothing and starts what comes after it."""
    canvas = chord([add.s(1, 2), group(), group(echo.s(3) | noop.s())], echo.s())
    for _ in range(2):
        canvas.delay(key="k")
    with transaction.atomic(using=producer):
        chord([], echo.s(), on_error=fails_once.s()).delay()
    assert (2, 3) == (count(owner, "pgqueue_workflow"), count(owner))

    # One whose job cannot be stored is dead by itself.
    owner.execute(NO_ECHO)
    try:
        result = chord([], echo.s()).delay()
    finally:
        owner.execute("ALTER TABLE pgqueue_job DROP CONSTRAINT no_echo")
    found = owner.execute(
        "SELECT state FROM pgqueue_workflow WHERE id = %s", [result.id]
    )
    assert ("failed",) == found.fetchone()


def test_sql_enqueues_and_publishes(producer, owner):
    """By the functions for other languages, in lanes too."""
    with connections[producer].cursor() as cursor:
        for call in (
            "pgqueue_enqueue('t', args => '[1]', dedup_key => 'k')",
            "pgqueue_enqueue('t', lane => 'l', lane_capacity => 2)",
            "pgqueue_publish('orders.paid', '{}')",
        ):
            cursor.execute(f"SELECT {call}")
        cursor.execute("INSERT INTO pgqueue_job (task, args) VALUES ('t', '[1]')")
    step.delay("c", 1)
    limited.bulk([("t", 1)])

    assert (5, 1) == (count(owner), count(owner, "pgqueue_message"))
