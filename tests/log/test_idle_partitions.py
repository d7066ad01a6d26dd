"""What a look into an idle partition costs does not grow with the busy ones."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

import pytest

from django_pgqueue.log import (
    browse,
    doctor,
    generations,
    ingest_lag,
    lag,
    positions,
    retain,
    seek,
)
from django_pgqueue.models import ConsumerGroup, Generation, Position
from django_pgqueue.pipeline.exports import note
from django_pgqueue.postgres.connect import Link
from django_pgqueue.postgres.limits import Plans, along_index, limit
from django_pgqueue.spark.log import read
from tests.harness.factories import make_topic
from tests.log.log import LEASE, make_group
from tests.queues.test_plans import buffers, explain

pytestmark = pytest.mark.django_db(transaction=True)

# All of them are in one of the partitions.
MESSAGES, PARTITIONS, BUSY = 100_000, 8, 3

FILL = """
INSERT INTO pgqueue_message (published_at, topic_id, partition, name, payload)
SELECT %(at)s, %(topic)s, %(busy)s, 'clicks', '1' FROM generate_series(1, %(n)s)
"""

# A few for each partition and day, of which the log has nine. Who walks over the busy
# one for each that is idle touches 11,000.
BUFFERS_MAX = 600


@pytest.fixture(params=["never analysed", "analysed"])
def topic(cursor, log_days, request):
    """A topic with one busy partition, and a group that has only just begun."""
    # Its table is new, so that nothing is known of it, whatever ran before.
    at = datetime.combine(log_days(1), time(12), UTC)
    topic = make_topic(name="clicks", partitions=PARTITIONS)
    make_group(cursor)
    cursor.execute(FILL, {"at": at, "topic": topic.pk, "busy": BUSY, "n": MESSAGES})
    if request.param == "analysed":
        cursor.execute("ANALYZE")
    return topic


def test_an_idle_partition_is_looked_at_by_its_own_index(topic, cursor):
    """Whatever the planner knows: of the others, nothing is read."""
    cursor.execute("SELECT min(id), max(id) FROM pgqueue_message")
    low, high = cursor.fetchone()
    group = Position.objects.values_list("group_id", flat=True).first()
    Position.objects.update(position=low)
    note(cursor, "/srv/log", {"clicks": low}, run=1)
    # As if the count of partitions had just been changed, so that all are former ones.
    Generation.objects.create(
        topic_id=topic.pk,
        first_partition=0,
        partitions=PARTITIONS,
        ended_by=1,
        last_id=high,
    )
    every = [*range(PARTITIONS)]
    own = {
        "topic": topic.pk,
        "topic_id": topic.pk,
        "topics": [topic.pk],
        "group": group,
        "groups": [group],
        "partitions": every,
        "positions": [high] * PARTITIONS,
        "lasts": [low] * PARTITIONS,
        "since": "-infinity",
        "before": "infinity",
        "bound": high,
        "bounds": [high],
        "highest": high,
        "low": low,
        "first": low + 1,
        "time": "2000-01-01T00:00Z",
        "above": low,
        "below": high + 1,
        "rows": 50,
        "limit": 100,
        "default": timedelta(0),
        "wait": timedelta(days=7),
        "share": 0.0,
        "given_up": timedelta(days=7),
        "places": 50,
        "ids": list(Position.objects.values_list("pk", flat=True)),
        "name": None,
        "part": None,
        "key": None,
    }
    ranges = [
        f"{each}, {topic.pk}, {each}, {low}::bigint, {high}::bigint" for each in every
    ]
    no_days = {"topics": [], "firsts": []}
    idle = Position.objects.exclude(partition=BUSY).values_list("pk", flat=True)[0]
    asked = {
        "lag": (lag.LAG, own),
        "lag of ingest": (ingest_lag.LAG, own),
        "behind": (doctor.BEHIND, {**own, **no_days}),
        "not ingested": (doctor.UNINGESTED, own),
        "count": (browse.COUNT, own),
        "ends": (browse.ENDS, own),
        "highest that goes": (retain.HIGHEST, own),
        "behind what goes": (retain.BEHIND, own),
        "lost": (retain.LOST, own),
        "last lost": (retain.LAST_LOST, {**own, "id": idle}),
        "newest": (browse.NEWEST, own),
        "oldest": (browse.OLDEST, own),
        "between": (seek.BETWEEN, own),
        "first": (seek.FIRST, own),
        "finish": (generations.FINISH, own),
        "drop": (generations.DROP, own),
        "forward": (positions.FORWARD, own),
        "unread, of generations": (
            "SELECT * FROM pgqueue_unread(%(group)s, %(topic)s, %(bound)s, %(since)s)",
            own,
        ),
        "walk of Spark": (
            read.WALK.format(
                ranges=", ".join(f"({each}, 100)" for each in ranges), condition="true"
            ),
            own,
        ),
        "ends for Spark": (
            read.ENDS.format(
                ranges=", ".join(f"({each})" for each in ranges), condition="true"
            ),
            own,
        ),
    }
    how = "ANALYZE, BUFFERS, FORMAT JSON"
    found = {}
    with cursor.connection.transaction():
        limit(cursor, seconds=60, plans=Plans.IN_ORDER)
        with along_index(cursor):
            for name, (statement, params) in asked.items():
                found[name] = buffers(explain(cursor, statement, params, how=how))
    # A worker whose group has read the busy one asks what else there is.
    Position.objects.filter(partition=BUSY).update(position=high)
    link = Link("default", name="tests", steady=True)
    try:
        steady = link.cursor()
        known = positions._arrays(positions.look(steady, group))
        claiming = {**own, **known, "worker": "w", "lease": LEASE}
        plan = explain(steady, positions.CLAIM, claiming, how=how)
        found["claim"] = buffers(plan)
    finally:
        link.drop()

    ConsumerGroup.objects.update(task="")
    reading = "SELECT * FROM pgqueue_read('clicks/g', 50)"
    found["read without a task"] = buffers(explain(cursor, reading, {}, how=how))
    Position.objects.filter(partition=BUSY).update(position=low)
    found["read of a few"] = buffers(explain(cursor, reading, {}, how=how))

    assert {} == {name: pages for name, pages in found.items() if pages > BUFFERS_MAX}
