"""What the pipeline reads of a day stays a part of it, whatever the day has."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from django_pgqueue.pipeline import ended_jobs, enqueued_hours
from django_pgqueue.postgres.day_tables import ARCHIVE
from django_pgqueue.postgres.limits import Plans, limit
from tests.queues.test_plans import buffers, explain, nodes

HOUR = timedelta(hours=1)
DAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(
    days=2
)
ROWS = 24_000
MEASURED = "BUFFERS, ANALYZE, FORMAT JSON"

FILL = """
INSERT INTO pgqueue_archived_job (id, task, state, enqueued_at, started_at, finished_at)
SELECT n, 'shop.send', 'succeeded', at, at, at
  FROM (SELECT n, %(day)s + n * interval '3.6 s' AS at
          FROM generate_series(0, %(rows)s - 1) n) AS rows
"""
FILL_OTHERS = """
INSERT INTO pgqueue_dead_letter (id, task, reason, started_at, finished_at)
SELECT id + 1000000, task, 'exhausted', started_at, finished_at
  FROM pgqueue_archived_job;
INSERT INTO pgqueue_job (task) SELECT task FROM pgqueue_archived_job;
"""


@pytest.fixture
def day(transactional_db, cursor):
    """A day with 1000 jobs an hour, each in the queue and among dead letters too."""
    with cursor.connection.transaction():
        ARCHIVE.make_day(cursor, DAY.date())
    cursor.execute(FILL, {"day": DAY, "rows": ROWS})
    cursor.execute(FILL_OTHERS)
    # A row that has moved within its table.
    cursor.execute("UPDATE pgqueue_archived_job SET result = '1' WHERE id = 5500")
    cursor.execute("VACUUM ANALYZE pgqueue_archived_job, pgqueue_dead_letter")
    yield
    ARCHIVE.remove(cursor, DAY.date())


def scans(plan):
    return {
        node.get("Relation Name", node["Node Type"]): node["Node Type"]
        for node in nodes(plan)
        if "Relation Name" in node and node["Node Type"] != "Append"
    }


def test_an_hour_is_read_from_its_first_row_to_its_last(cursor, day):
    """By their places, in the one partition that it is in; and no hour lacks a row."""
    cursor.execute(
        ended_jobs.PLACES_ARCHIVED, {"since": DAY, "until": DAY + timedelta(days=1)}
    )
    places = {hour: place for hour, *place in cursor.fetchall()}
    first, last = places[DAY + 7 * HOUR]
    asked = {"hour": DAY + 7 * HOUR, "first": first, "last": last}

    plan = explain(cursor, ended_jobs.MEASURE_ARCHIVED, asked, how=MEASURED)

    name = ARCHIVE.name_of(DAY.date())
    found = scans(plan)
    assert "Tid Range Scan" == found.pop(name)
    assert {"pgqueue_dead_letter"} == set(found)
    assert "Seq Scan" not in found.values()
    # A twentieth of both tables would be 60.
    assert buffers(plan) < 100
    with ended_jobs.archived(cursor, DAY, DAY) as looked_at:
        hours = looked_at.measured(looked_at.counts)
    assert [1_000] * 24 == [row[4] for row in hours]


def test_dead_letters_are_found_by_when_they_gave_up(cursor, day):
    """And not by going through all of them."""
    asked = {"since": DAY + 22 * HOUR, "until": DAY + 23 * HOUR}
    for statement in (
        ended_jobs.COUNT_LETTERS,
        ended_jobs.LETTERS,
        enqueued_hours.COUNT_DEAD,
    ):
        plan = explain(cursor, statement, asked)

        assert "Seq Scan" not in scans(plan).values(), statement


def test_the_queue_is_read_a_part_at_a_time(cursor, day):
    """Along its primary key, also before it was ever analysed."""
    asked = {"after": 0, "rows": 500, "since": DAY, "until": DAY + HOUR}
    with cursor.connection.transaction():
        limit(cursor, seconds=60, plans=Plans.IN_ORDER)
        for statement in (ended_jobs.WAITING, enqueued_hours.COUNT_WAITING):
            plan = explain(cursor, statement, asked, how=MEASURED)

            assert "Seq Scan" not in scans(plan).values(), statement
            assert buffers(plan) < 100
