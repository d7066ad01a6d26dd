"""What readers of a log cost does not grow with the log."""

import json

import pytest
from django.db import connection

from django_pgqueue.log import generations, ingest_lag, lag, positions, pull, read, seek
from django_pgqueue.models import Generation, Topic
from django_pgqueue.pipeline.ingest import note
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.limits import Plans, along_index, limit
from tests.log.log import LEASE, make_group
from tests.queues.test_plans import explain

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

MESSAGES = 200_000
PARTITIONS = 8

# Half of the log is another topic's.
FILL = """
INSERT INTO pgqueue_message (topic_id, partition, name, key, payload)
SELECT CASE n %% 2 WHEN 0 THEN %(topic)s ELSE %(topic)s + 1 END, n / 2 %% 8, 'clicks',
       'k', jsonb_build_object('n', n, 'rare', n %% 10000 = 0)
  FROM generate_series(1, %(n)s) n
"""

# The most pages that each may touch, for a batch of a hundred or one position.
BUFFERS_MAX = {
    "look": 100,
    "claim": 500,
    "claim by id": 500,
    "claim, nothing to read": 1_500,
    "forward": 1_500,
    "read": 500,
    "read where": 4_000,
    "pull": 700,
    "lag": 8_000,
    "lag of ingest": 8_000,
    "before": 4_000,
    "first": 2_000,
    "unread": 500,
    "unread, nothing to read": 1_500,
    "numbers": 500,
    "finish": 1_500,
    "drop": 500,
}


@pytest.fixture(params=["never analysed", "analysed"])
def log(cursor, request):
    """A log of two topics, and a group that has read nothing."""
    # Whatever ran before: as after a migration, with no statistics.
    topic = Topic.objects.create(name="clicks", partitions=PARTITIONS)
    group = make_group(cursor)
    cursor.execute(FILL, {"topic": topic.pk, "n": MESSAGES})
    if request.param == "analysed":
        cursor.execute("ANALYZE pgqueue_message")
    cursor.execute("SELECT min(id), max(id) FROM pgqueue_message")
    low, high = cursor.fetchone()
    return group, topic.pk, low, high


def used(plan):
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


def test_readers_touch_few_pages_of_a_large_log(log, cursor):
    """Neither a claim nor a batch, a lag or a seek walks over the log."""
    group, topic, low, high = log
    with connection.cursor() as plain:
        known = positions.look(plain, group)
    own = {
        "group": group,
        "worker": "w",
        "lease": LEASE,
        "since": "-infinity",
        "topic_id": topic,
        **positions._arrays(known),
    }
    batch = {
        "topic": topic,
        "partition": 3,
        "after": low + MESSAGES // 2,
        "bound": high,
        "since": "-infinity",
        "limit": 100,
        "bytes": read.BATCH_BYTES_DEFAULT,
    }
    where = {**batch, "scan": 2_000, "where": json.dumps({"rare": True})}
    counted = {
        "groups": [group],
        "topics": [topic],
        "bounds": [high],
        "highest": high,
        "since": "-infinity",
        "limit": 100,
    }
    note(cursor, "/srv/log", {"clicks": low}, run=1)
    ingested = {"given_up": "7d", "places": 50, "limit": 100, "since": "-infinity"}
    time = "2000-01-01T00:00Z"
    halves = {"low": 0, "high": high, "time": time, "disorder": 10.0}
    first = {"topic_id": topic, "partitions": [3], "low": low, "time": time}
    asked = {
        "look": (positions.LOOK, {"group": group}),
        "claim": (positions.CLAIM, {**own, "bound": high}),
        "claim by id": (positions.CLAIM_BY_ID, {**own, "bound": high}),
        "read": (read.READ, batch),
        "read where": (read.READ_WHERE, where),
        "before": (seek.BEFORE, halves),
        "first": (seek.FIRST, first),
        "unread": (generations.UNREAD, {**own, "bound": high}),
        "numbers": (generations.NUMBERS, own),
        "drop": (generations.DROP, own),
    }
    link = Link("default", name="tests", steady=True)
    how = "ANALYZE, BUFFERS, FORMAT JSON"
    # As if the count of partitions had just been changed.
    Generation.objects.create(
        topic_id=topic,
        first_partition=0,
        partitions=PARTITIONS,
        ended_by=1,
        last_id=high - 20,
    )
    Topic.objects.update(first_partition=PARTITIONS)
    try:
        cursor = link.cursor()
        # Once for the plan of the function's statement.
        cursor.execute(generations.UNREAD, {**own, "bound": high})
        found = {
            name: used(explain(cursor, statement, params, how=how))
            for name, (statement, params) in asked.items()
        }
        with cursor.connection.transaction():
            # As who reads them does.
            limit(cursor, seconds=60, plans=Plans.IN_ORDER)
            with along_index(cursor):
                for name, statement, params in (
                    ("lag", lag.LAG, counted),
                    ("lag of ingest", ingest_lag.LAG, ingested),
                ):
                    found[name] = used(explain(cursor, statement, params, how=how))
        cursor.execute("UPDATE pgqueue_consumer_group SET task = ''")
        asks = {"group": "clicks/g", "limit": 100}
        # Once for the plans of the function's statements.
        cursor.execute(pull.READ, asks)
        found["pull"] = used(explain(cursor, pull.READ, asks, how=how))
        # Everything is read, and another topic has published much since.
        with connection.cursor() as plain:
            plain.execute("UPDATE pgqueue_position SET position = %s", [high - 20])
            plain.execute("DELETE FROM pgqueue_message WHERE id > %s", [high - 20])
        for name, statement in (
            ("claim, nothing to read", positions.CLAIM),
            ("forward", positions.FORWARD),
            ("unread, nothing to read", generations.UNREAD),
            ("finish", generations.FINISH),
        ):
            read_to = {"positions": [high - 20] * len(known)}
            params = {**own, "bound": high, **read_to}
            found[name] = used(explain(cursor, statement, params, how=how))
    finally:
        link.drop()
    assert {} == {
        name: pages for name, pages in found.items() if pages > BUFFERS_MAX[name]
    }
