"""
With many rows, every page is a few index probes: no scan, no count, no sort.

What a page looks through is bounded: no query becomes dearer as its table grows.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from django_pgqueue.admin.acting import limited
from django_pgqueue.postgres.limits import Plans
from tests.scale.shapes import ROWS

pytestmark = pytest.mark.django_db

# Half of the rows have one tag, one in ten thousand another, most of the rest none.
HEADERS = (
    "CASE WHEN n %% 2 = 0 THEN jsonb_build_object('tags', jsonb_build_array('often'))"
    " WHEN n %% 10000 = 1 THEN jsonb_build_object('tags', jsonb_build_array('seldom'))"
    " ELSE '{}' END"
)

# New files: what other tests left behind as dead rows must not be walked over.
FILL_JOBS = """
TRUNCATE pgqueue_job;

INSERT INTO pgqueue_job (id, queue, task, kwargs, headers, visible_at)
SELECT n, CASE WHEN n %% 9 = 0 THEN 'few' ELSE 'most' END, 'app.tasks.t' || n %% 50,
       '{"order_id": 4711}', HEADERS, now() + interval '1 day'
  FROM generate_series(1, %(rows)s) n;

INSERT INTO pgqueue_queue (name) VALUES ('few'), ('most'), ('none');
""".replace("HEADERS", HEADERS)

# Archived rows fill six whole days, from tomorrow on: a day with few rows, as today at
# one in the morning, is rightly read as a whole.
FILL = (
    FILL_JOBS
    + """
TRUNCATE pgqueue_archived_job, pgqueue_dead_letter;

INSERT INTO pgqueue_archived_job (id, queue, task, kwargs, headers, state, attempt,
                                  deliveries, started_at, finished_at, worker, result)
SELECT n, CASE WHEN n %% 9 = 0 THEN 'few' ELSE 'most' END, 'app.tasks.t' || n %% 50,
       '{"order_id": 4711}', HEADERS, 'succeeded', 1, 1, now(),
       date_trunc('day', now(), 'UTC') + interval '1 day'
       + (n - 1) * interval '6 days' / %(rows)s, 'web-1:42', '{"ok": true}'
  FROM generate_series(1, %(rows)s) n;

INSERT INTO pgqueue_dead_letter (id, queue, task, kwargs, headers, reason, attempt,
                                 deliveries, finished_at, worker, errors)
SELECT n, CASE WHEN n %% 9 = 0 THEN 'few' ELSE 'most' END, 'app.tasks.t' || n %% 50,
       '{"order_id": 4711}', HEADERS, 'exhausted', 5, 5, now() - n * interval '1 s',
       'web-1:42',
       jsonb_build_array(jsonb_build_object(
           'type', 'builtins.ValueError', 'message', 'bad ' || n,
           'traceback', repeat('File x, line ' || n, 20)))
  FROM generate_series(1, %(rows)s) n;
""".replace("HEADERS", HEADERS)
)
ANALYZE = "ANALYZE pgqueue_archived_job, pgqueue_dead_letter, pgqueue_job"

# Blocks of 8 kB that one statement may touch, whatever the size of the tables: those
# of 30 000 rows that are looked through.
BLOCKS_MAX = 4_000
# The queries of a page, without the savepoints that this test's own transaction makes
# of BEGIN and COMMIT.
QUERIES_MAX = 15
SAVEPOINT = re.compile("SAVEPOINT|RELEASE")

QUERIES = [
    "",
    "?oldest=1",
    "?q=77",
    "?q=77777777777",
    # Found nowhere, so the search goes as far as it may.
    "?q=no.such.task",
    "?q=no.such.task&oldest=1",
    "?queue=no-such-queue",
    "?queue=few&q=t17",
    "?queue=most&q=no.such.task",
    "?queue=most&q=no.such.task&oldest=1",
    "?tag=often",
    "?tag=often&q=no.such.task",
    "?tag=seldom",
    "?tag=seldom&oldest=1",
    "?tag=no-such-tag",
]
PLACES = {
    "job": [
        "?before={middle}",
        "?after={middle}",
        "?state=running",
        "?state=retrying&task=shop.task&error=OSError&place=-",
        "groups/",
    ],
    "archivedjob": [
        "?before={middle}",
        "?after={middle}",
        "?state=expired",
        "?state=expired&before={middle}",
        "?age=1h",
        "?age=7d&task=app.tasks.t17",
    ],
    "deadletter": [
        "?before=2026-01-01T00:00:00%2B00:00~{middle}",
        "?after=2026-01-01T00:00:00%2B00:00~{middle}",
        "?reason=timeout",
        "?kind=c4ca4238a0b923820dcc509a6f75849b",
        "?kind=c4ca4238a0b923820dcc509a6f75849b&tag=often",
        "?age=1h",
        "?age=7d&reason=timeout",
        "groups/",
        "?reason=timeout&error=OSError&place=-",
        "?reason=timeout&after=2026-01-01T00:00:00%2B00:00~{middle}",
    ],
}


@pytest.mark.slow
@pytest.mark.timeout(1_200)  # A million rows take minutes.
def test_no_page_scans_or_counts_a_table(admin_client):
    """
    Lists with every filter, at both ends and in the middle, and detail pages.

    On tables that were never analysed, and then on the same analysed.
    """
    with connection.cursor() as cursor:
        cursor.execute(FILL, {"rows": ROWS})
    assert_pages_are_cheap(admin_client, ROWS)
    with connection.cursor() as cursor:
        cursor.execute(ANALYZE)
    assert_pages_are_cheap(admin_client, ROWS)


@pytest.mark.slow
def test_the_check_sees_a_scan(db):
    """A count, as Django's own list would make it, is found out."""
    with connection.cursor() as cursor:
        cursor.execute(FILL, {"rows": 20_000})

    for table in ("archived_job", "dead_letter", "job"):
        statement = f"SELECT count(*) FROM pgqueue_{table}"
        with pytest.raises(AssertionError, match=r"Seq Scan|blocks"):
            assert_is_cheap(statement, "?", blocks_max=500, plans=Plans.ANY)


def assert_pages_are_cheap(client, rows):
    for page, places in PLACES.items():
        url = f"/admin/pgqueue/{page}/"
        for query in [*QUERIES, *places, f"{rows // 2}/change/"]:
            path = url + query.format(middle=rows // 2)
            statements = [
                q for q in asked(client, path) if re.search('["m ]pgqueue_', q)
            ]
            assert statements
            assert not [sql for sql in statements if "count(" in sql.lower()]
            for statement in of_each_shape(statements):
                assert_is_cheap(statement, path)


def asked(client, path, queries_max=QUERIES_MAX):
    """Return the statements of a page, which are few."""
    with CaptureQueriesContext(connection) as queries:
        assert 200 == client.get(path).status_code
    statements = [q["sql"] for q in queries if not SAVEPOINT.match(q["sql"])]
    assert len(statements) <= queries_max, path
    return statements


# Far more schedules than a project has, with ticks of months.
FILL_SCHEDULES_ALONE = """
TRUNCATE pgqueue_schedule, pgqueue_tick;

INSERT INTO pgqueue_schedule (id, name, source, task, every_seconds, next_tick)
SELECT n, 'schedule ' || n, 'user', 'app.tasks.t' || n %% 50, 60,
       now() + interval '1 day'
  FROM generate_series(1, 5000) n;

INSERT INTO pgqueue_tick (schedule_id, due_at, job_id)
SELECT n %% 5000 + 1, now() - n / 5000 * interval '1 h', n
  FROM generate_series(1, %(rows)s) n;
"""


# Messages of one large topic and of a small one, over six whole days from tomorrow on.
FILL_LOG = """
TRUNCATE pgqueue_message, pgqueue_topic, pgqueue_subscription, pgqueue_consumer_group,
         pgqueue_position;

INSERT INTO pgqueue_topic (id, name, partitions) VALUES (1, 'large', 16), (2, 'few', 4);

INSERT INTO pgqueue_message (id, published_at, topic_id, partition, name, key, payload)
SELECT n, date_trunc('day', now(), 'UTC') + interval '1 day'
          + (n - 1) * interval '6 days' / %(rows)s,
       CASE WHEN n %% 1000 = 0 THEN 2 ELSE 1 END, n %% 4, 'large.paid', 'c' || n %% 97,
       '{"id": 4711}'
  FROM generate_series(1, %(rows)s) n;
SELECT setval('pgqueue_message_id_seq', %(rows)s);

INSERT INTO pgqueue_subscription (pattern, topic, task, queue)
SELECT 'large', 'large', 't' || n, 'q' FROM generate_series(1, 300) n;

INSERT INTO pgqueue_consumer_group (id, topic_id, topic, name, task)
VALUES (1, 1, 'large', 'stats', 't'), (2, 2, 'few', 'stats', 't');
INSERT INTO pgqueue_position (group_id, partition)
SELECT g, n FROM generate_series(1, 2) g, generate_series(0, 3) n;
"""
LOG_PAGES = [
    "message/",
    "message/?oldest=1",
    "message/?before={middle}",
    "message/?q=nowhere",
    "message/?q=77",
    "message/?key=c5&oldest=1",
    "message/?topic=large",
    "message/?topic=few",
    "message/?topic=few&oldest=1",
    "message/?topic=large&key=none",
    "message/?topic=large&partition=3&q=nowhere&before={middle}",
    "message/?topic=large&since={day}",
    "message/?since={day}",
    "message/{middle}/change/",
    "topic/",
    "topic/1/change/",
    "subscription/?q=none",
    "consumergroup/",
    "consumergroup/1/change/",
]


@pytest.mark.slow
def test_pages_of_topics_read_a_bounded_number_of_rows(admin_client):
    """Along the index of the log, whether a topic has many messages or few of many."""
    with connection.cursor() as cursor:
        cursor.execute(FILL_LOG, {"rows": ROWS})
        cursor.execute("ANALYZE pgqueue_message")
    day = (datetime.now(UTC) + timedelta(days=4)).date()
    for page in LOG_PAGES:
        path = f"/admin/pgqueue/{page.format(middle=ROWS // 2, day=day)}"
        # The lag of all groups that a page shows is five.
        for statement in asked(admin_client, path, queries_max=QUERIES_MAX + 9):
            if "pgqueue_message" in statement:
                # Four partitions of 10,000 messages each, at most, for the lag.
                assert_is_cheap(statement, path, blocks_max=42_000)


# Twenty queues in which half of the jobs are ready, and the others in every state; dead
# letters of a day and a half; twenty groups that have read nothing; workers.
FILL_OVERVIEW = """
TRUNCATE pgqueue_archived_job, pgqueue_dead_letter, pgqueue_job, pgqueue_worker;

INSERT INTO pgqueue_job (id, queue, task, headers, visible_at, attempt, deliveries,
                         leased_by, leased_at, lane)
SELECT n, 'queue ' || n / 10 %% 20, 'app.tasks.t' || n %% 50, '{}',
       CASE WHEN n %% 10 < 5 THEN now() - n * interval '1 ms'
            WHEN n %% 10 = 5 THEN now() + interval '30 s'
            WHEN n %% 10 < 9 THEN now() + n * interval '1 s' END,
       CASE WHEN n %% 10 IN (5, 6) THEN 1 ELSE 0 END,
       CASE WHEN n %% 10 IN (5, 6) THEN 1 ELSE 0 END,
       CASE WHEN n %% 10 = 5 THEN 'web-' || n / 10 %% 10 END,
       CASE WHEN n %% 10 = 5 THEN now() - n * interval '1 ms' END,
       CASE WHEN n %% 10 = 9 THEN 'lane ' || n %% 1000 END
  FROM generate_series(1, %(rows)s) n;

INSERT INTO pgqueue_dead_letter (id, queue, task, headers, reason, attempt, deliveries,
                                 finished_at, worker, errors)
SELECT n, 'queue ' || n %% 20, 'app.tasks.t' || n %% 50, '{}', 'exhausted', 5, 5,
       now() - (n - 1) * interval '36 hours' / %(rows)s, 'web-1',
       jsonb_build_array(jsonb_build_object(
           'type', 'builtins.ValueError', 'message', 'bad ' || n,
           'traceback', repeat('File x, line ' || n, 20)))
  FROM generate_series(1, %(rows)s) n;

INSERT INTO pgqueue_worker (name, hostname, pid, threads, version)
SELECT 'web-' || n, 'web', n, 8, '1' FROM generate_series(0, 9) n;
"""
# A row for each process, or for each of what code declares.
SMALL = (
    *("pgqueue_worker", "pgqueue_queue"),
    *("pgqueue_consumer_group", "pgqueue_position", "pgqueue_log_day"),
)

# A hundred pairs of queue and task, in all spans that are kept.
FILL_SPANS = """
INSERT INTO pgqueue_task_span
       (seconds, since, queue, task, succeeded, failed, dead, cancelled, expired,
        wait_seconds, run_seconds, waits, runs)
SELECT kept.seconds, date_bin(make_interval(secs => kept.seconds), now(), 'epoch')
                     - n * make_interval(secs => kept.seconds),
       'queue ' || pair % 20, 'app.tasks.t' || pair, 5, 1, 1, 0, 0, 1.5, 2.5,
       array_fill(1::bigint, ARRAY[28]), array_fill(1::bigint, ARRAY[28])
  FROM (VALUES (60, 180), (600, 180), (3600, 192)) AS kept(seconds, count)
 CROSS JOIN LATERAL generate_series(0, kept.count - 1) n
 CROSS JOIN generate_series(1, 100) pair;
"""

MORE_GROUPS = """
INSERT INTO pgqueue_consumer_group (id, topic_id, topic, name, task)
SELECT n, 1, 'large', 'group ' || n, 't' FROM generate_series(3, 20) n;
INSERT INTO pgqueue_position (group_id, partition)
SELECT g, n FROM generate_series(3, 20) g, generate_series(0, 3) n;
"""


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_the_overview_is_a_few_bounded_queries(admin_client):
    """
    However large all tables are: sixteen queries, none of which scans one; besides,
    Django asks for the session and the user.
    """
    with connection.cursor() as cursor:
        for fill in (FILL_OVERVIEW, FILL_LOG, FILL_SCHEDULES_ALONE):
            cursor.execute(fill, {"rows": ROWS})
        cursor.execute(MORE_GROUPS)
        cursor.execute(FILL_SPANS)
        cursor.execute(
            "ANALYZE pgqueue_job, pgqueue_dead_letter, pgqueue_message,"
            " pgqueue_schedule, pgqueue_position, pgqueue_task_span"
        )
    path = "/admin/pgqueue/"
    html = admin_client.get(path).content.decode()
    assert re.search(r"Ready</dt><dd><a [^>]*>[\d,]+\+<", html)
    assert "And 90 more; choose one above." in html

    # The transaction around this test has the limits taken back, by a query of its own;
    # lags are read without sorts, which is set before and taken back after each.
    statements = asked(admin_client, path, queries_max=QUERIES_MAX + 8)
    for statement in statements:
        if "pgqueue_" in statement:
            assert_is_cheap(statement, path, blocks_max=60_000, small=SMALL)


def of_each_shape(statements):
    """Return the first, a middle and the last of those that differ in values only."""
    shapes = defaultdict(list)
    for statement in statements:
        shapes[re.sub(r"\d+|'[^']*'", "?", statement)].append(statement)
    for alike in shapes.values():
        yield from {alike[0], alike[len(alike) // 2], alike[-1]}


def assert_is_cheap(
    statement, path, blocks_max=BLOCKS_MAX, plans=Plans.IN_ORDER, small=()
):
    if "WITH tagged" in statement:
        # The bitmap of a tag that half of a million rows have is half of its index.
        plans = Plans.BY_INDEX
    with limited(plans), connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}")
        (answer,) = cursor.fetchone()
    plan = (json.loads(answer) if isinstance(answer, str) else answer)[0]["Plan"]
    blocks = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    assert blocks <= blocks_max, f"{blocks} blocks, {path}: {statement}"
    for node in nodes(plan):
        # A day without rows may be read whole: it has no blocks. A sequence is a row.
        table = node.get("Relation Name", "")
        is_short = table.endswith("_id_seq") or table in small
        if node["Node Type"] == "Seq Scan" and not is_short:
            assert node["Actual Rows"] == 0, f"Seq Scan, {path}: {statement}"
            assert node["Shared Hit Blocks"] == 0, f"Seq Scan, {path}: {statement}"


def nodes(plan):
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)
