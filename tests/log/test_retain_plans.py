"""What a step of the log's retention costs does not grow with the log or the queue."""

from __future__ import annotations

import json
from datetime import UTC, datetime, time, timedelta

import pytest
from psycopg import sql

from django_pgqueue.log import retain
from django_pgqueue.log.days import LOG, close_days
from django_pgqueue.postgres.limits import Plans, limit
from tests.harness.factories import make_group, make_position, make_topic
from tests.queues.test_plans import nodes

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

MESSAGES, JOBS = 80_000, 50_000
PARTITIONS = 8
DAY = timedelta(days=1)

FILL = """
INSERT INTO pgqueue_message (published_at, topic_id, partition, name, key, payload)
SELECT %(at)s::timestamptz, CASE n %% 2 WHEN 0 THEN %(topic)s ELSE %(topic)s + 1 END,
       n / 2 %% 8, 'clicks', 'k', jsonb_build_object('n', n)
  FROM generate_series(1, %(n)s) n
"""
# One in ten refers to a message of the day that goes, by turns of one topic and of the
# other, whatever numbers their messages have.
REFER = """
INSERT INTO pgqueue_job (task, message_id, args)
SELECT 'shop.send', m.id, jsonb_build_array(jsonb_build_object(
           '__pgqueue__', 'message', 'value', jsonb_build_array(m.id, m.published_at)))
  FROM generate_series(1, %(n)s) n
  LEFT JOIN pgqueue_message m ON n %% 10 = 0 AND m.id = %(low)s + n - n / 10 %% 2
"""

BUFFERS_MAX = {
    "KEPT (nothing there)": 50,
    "KEPT": 50,
    "HIGHEST": 3_000,
    "BEHIND (nobody)": 300,
    "BEHIND": 300,
    "LOST": 12_000,
    "LAST_LOST": 50,
    # A slice of 2,000 jobs, of which 200 refer, half of them to this topic; each is
    # found and written.
    "INLINE_JOBS": 8_000,
    "INLINE_JOBS (again)": 4_000,
    "DELETE": 8_000,
    "DELETE (nothing there)": 50,
}


@pytest.fixture(params=["never analysed", "analysed"])
def log(cursor, log_days, request):
    """Two old days of two topics, and jobs of which a tenth refer to them."""
    first = log_days(9)
    log_days(8)
    topic = make_topic(name="clicks", partitions=PARTITIONS)
    make_topic(name="mail", id=topic.pk + 1)
    for day in (first, first + DAY):
        at = datetime.combine(day, time(12), UTC)
        cursor.execute(FILL, {"at": at, "topic": topic.pk, "n": MESSAGES // 2})
    ours = "SELECT min(id), max(id) FROM pgqueue_message WHERE topic_id IN (%s, %s)"
    cursor.execute(ours, [topic.pk, topic.pk + 1])
    low, high = cursor.fetchone()
    cursor.execute(REFER, {"n": JOBS, "low": low})
    close_days(cursor)
    if request.param == "analysed":
        cursor.execute("ANALYZE pgqueue_message")
        cursor.execute("ANALYZE pgqueue_job")
    return topic, first, low, high


def measured(cursor, statement, params):
    """Return the pages that a statement touches, and the tables that it scans whole."""
    with cursor.connection.transaction(force_rollback=True):
        if statement is retain.INLINE_JOBS:
            limit(cursor, seconds=60, plans=Plans.BY_INDEX)
        how = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "
        if isinstance(statement, str):
            cursor.execute(how + statement, params)
        else:
            cursor.execute(sql.SQL(how) + statement, params)
        plan = cursor.fetchone()[0][0]["Plan"]
    whole = {
        node["Relation Name"]
        for node in nodes(plan)
        if node["Node Type"] == "Seq Scan"
        and node["Relation Name"].startswith(("pgqueue_message", "pgqueue_job"))
    }
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"], whole, plan


def test_a_step_touches_few_pages(log, cursor):
    """Whether it finds something or nothing, and whatever the planner knows."""
    topic, first, low, high = log
    ahead, behind = (make_group(topic, name=name) for name in ("ahead", "behind"))
    for partition in range(PARTITIONS):
        make_position(ahead, partition, position=high)
    table = sql.Identifier(LOG.name_of(first))
    range_of = {
        "since": datetime.combine(first, time(), UTC),
        "before": datetime.combine(first + 2 * DAY, time(), UTC),
    }
    of_topic = {**range_of, "topic": topic.pk}
    deletes = {"partition": -1, "after": 0, "limit": 1_000}
    inline = {
        **range_of,
        "topics": [topic.pk],
        "names": ["clicks"],
        "befores": [range_of["before"]],
        "highest": high,
        "after": 0,
        "limit": retain.INLINE_ROWS_MAX,
    }
    kept, delete = (
        sql.SQL(statement).format(table=table)
        for statement in (retain.PRESENT, retain.DELETE)
    )
    asked = {
        "KEPT (nothing there)": (kept, {"topics": [topic.pk + 7]}),
        "KEPT": (kept, {"topics": [topic.pk]}),
        "HIGHEST": (retain.HIGHEST, {**of_topic, "partitions": [*range(256)]}),
        "BEHIND (nobody)": (retain.BEHIND, of_topic),
        "INLINE_JOBS": (retain.INLINE_JOBS, inline),
        "INLINE_JOBS (again)": (retain.INLINE_JOBS, {**inline, "highest": low - 1}),
        "DELETE": (delete, {**deletes, "topic": topic.pk}),
        "DELETE (nothing there)": (delete, {**deletes, "topic": topic.pk + 7}),
    }
    found = {name: measured(cursor, *what) for name, what in asked.items()}
    cursor.execute(retain.INLINE_JOBS, inline)
    assert (100, 100) == cursor.fetchone()[1:]
    position = make_position(behind, 0)
    lost = {**range_of, "ids": [position.pk], "id": position.pk, "limit": 10_000}
    for name, what in {
        "BEHIND": (retain.BEHIND, of_topic),
        "LOST": (retain.LOST, lost),
        "LAST_LOST": (retain.LAST_LOST, lost),
    }.items():
        found[name] = measured(cursor, *what)

    wrong = {
        name: (buffers, whole, json.dumps(plan))
        for name, (buffers, whole, plan) in found.items()
        if whole or buffers > BUFFERS_MAX[name]
    }
    assert {} == wrong
    assert set(BUFFERS_MAX) == set(found)
