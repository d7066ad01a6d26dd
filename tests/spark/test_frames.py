"""django_pgqueue.spark.read(), by Spark's own JDBC source, on a real PostgreSQL."""

from __future__ import annotations

import json
import logging
import threading

import pytest
from django.db import connection

from django_pgqueue.exceptions import SparkError
from django_pgqueue.redaction.names import REDACT_DEFAULT
from django_pgqueue.spark import frames, read, snapshot
from django_pgqueue.spark.dsn import DsnSource
from django_pgqueue.spark.jdbc import driver
from django_pgqueue.spark.redact import Redaction
from django_pgqueue.spark.tables import TABLES
from tests.harness.factories import (
    make_archived_job,
    make_dead_letter,
    make_job,
    make_jobs,
    make_leased_job,
)
from tests.redaction.cases import CASES
from tests.spark.test_read import NOON, WORDS, collate_keys, store_message

pytestmark = pytest.mark.spark

MANY = "INSERT INTO pgqueue_job (task) SELECT 'x' FROM generate_series(1, {})"

# What a worker does with a job that is done, many times and in short transactions.
MOVE = """
WITH done AS (
    DELETE FROM pgqueue_job
     WHERE id IN (SELECT id FROM pgqueue_job ORDER BY id LIMIT 7)
     RETURNING id, task
)
INSERT INTO pgqueue_archived_job (id, task, state, finished_at)
SELECT id, task, 'succeeded', clock_timestamp() FROM done
"""


def physical(frame):
    return frame._jdf.queryExecution().executedPlan().toString()


def test_a_table_is_what_the_other_source_reads(spark, read, by_jdbc):
    """Columns, types, values, NULLs and placeholders are those of format("pgqueue")."""
    carried = {
        "queue": "mäil",
        "args": [1, "é", None, {"a": 1.5}],
        "kwargs": {"token": "x", "order_id": 7},
        "run_after": NOON,
        "workflow_id": 2**62,
    }
    make_leased_job(**carried)
    make_archived_job(**carried)
    make_dead_letter(**carried)
    store_message("orders", {"api_key": "x", "a": [1]}, "c7")

    for table in TABLES:
        theirs = read(table)
        ours = frames.read(spark, table, dsn=by_jdbc)

        assert theirs.schema.simpleString() == ours.schema.simpleString()
        assert theirs.collect() == ours.collect()
        assert "JDBCRelation" in physical(ours)


def test_secrets_are_those_that_the_other_source_hides(spark, read, by_jdbc):
    """Every known case, whatever the patterns; and by the places of arguments."""
    for case in CASES:
        make_job(kwargs={"v": case.value}, errors=[{"message": case.value}])
    make_job(task="shop.login", args=["anna", "b"], kwargs={"iban": "DE1", "pin": "1"})
    make_job(task="shop.other", args=["anna", "b"], kwargs={"note": "kept"})

    for patterns in (None, ["iban"], ["p[i]n"], []):
        told = {} if patterns is None else {"redact": json.dumps(patterns)}
        ours = frames.read(spark, "jobs", redact=patterns, dsn=by_jdbc)
        assert sorted(read(**told).collect()) == sorted(ours.collect()), patterns

    frame = frames.read(spark, "jobs", redact=[], dsn=by_jdbc)
    places = Redaction(REDACT_DEFAULT, {"shop.login": (False, True)})
    masked = frames.masked(frame, TABLES["jobs"].columns, places)
    shown = masked.where("task LIKE 'shop.%'").orderBy("id").select("args").collect()
    assert ['["anna", "[redacted]"]', '["anna", "b"]'] == [row.args for row in shown]


def test_what_a_query_does_not_need_is_not_fetched(spark, by_jdbc):
    """Columns are left out and conditions answered by PostgreSQL; nothing is masked."""
    make_jobs(5, priority=1)
    (wanted,) = make_jobs(1, priority=9, queue="mail", kwargs={"token": "x"})
    where = "priority > 3 AND queue = 'mail' AND enqueued_at > timestamp'2020-01-01'"

    rows = read(spark, "jobs", columns=["id"], where=where, dsn=by_jdbc)
    everything = read(spark, "jobs", dsn=by_jdbc)

    assert [(wanted,)] == [tuple(row) for row in rows.collect()]
    assert "Filter (" not in physical(rows)
    assert "ReadSchema: struct<id:bigint>" in physical(rows)
    assert 6 == everything.count()
    assert "ReadSchema: struct<>" in physical(everything.groupBy().count())
    assert "ArrowEvalPython" not in physical(everything.groupBy("task").count())
    assert 1 == everything.where("kwargs LIKE '%redacted%'").count()
    assert 0 == everything.where("""kwargs = '{"token": "x"}'""").count()


def test_texts_and_times_are_compared_as_by_spark(spark, by_jdbc, cursor):
    """By bytes, whatever the collation; in the zone of the session."""
    collate_keys(cursor, "en-x-icu")
    for word in WORDS:
        make_job(dedup_key=word, run_after=NOON)
    rows = read(spark, "jobs", columns=["dedup_key", "run_after"], dsn=by_jdbc)

    for bound in WORDS:
        expected = sorted(w for w in WORDS if w.encode() > bound.encode())
        found = rows.where(rows.dedup_key > bound).collect()
        assert expected == sorted(row.dedup_key for row in found), bound
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    at_noon = "run_after = timestamp'2026-01-01 13:00:00.123456'"
    assert len(WORDS) == read(other, "jobs", where=at_noon, dsn=by_jdbc).count()
    # As in a session that is not ours, in a Java of another zone.
    other.conf.set("spark.sql.datetime.java8API.enabled", "false")
    java = spark._jvm.java.util.TimeZone
    before = java.getDefault()
    try:
        java.setDefault(java.getTimeZone("Asia/Tokyo"))
        assert len(WORDS) == read(other, "jobs", where=at_noon, dsn=by_jdbc).count()
        java.setDefault(java.getTimeZone("GMT+2"))
        with pytest.raises(SparkError, match=r"Java is 'GMT\+02:00', which PostgreSQL"):
            read(other, "jobs", dsn=by_jdbc)
    finally:
        java.setDefault(before)
    collate_keys(cursor, "default")


def test_tasks_have_as_many_rows_each(spark, by_jdbc, cursor):
    """Where one old job stays, ranges of the same width would leave all to one task."""
    (old,) = make_jobs(1)
    cursor.execute("SELECT setval('pgqueue_job_id_seq', 100000000)")
    cursor.execute(MANY.format(4_000))
    cursor.execute("ANALYZE pgqueue_job")

    rows = read(spark, "jobs", columns=["id"], partitions=4, dsn=by_jdbc)

    by_task = rows.selectExpr("spark_partition_id() AS task", "id").collect()
    counts = [sum(row.task == n for row in by_task) for n in range(4)]
    assert 4_001 == sum(counts)
    assert old in {row.id for row in by_task}
    assert 900 <= min(counts) <= max(counts) <= 1_100, counts


def test_a_snapshot_has_each_job_once_while_jobs_move(
    spark, by_jdbc, cursor, new_cursor
):
    """Three times of three, the queue and the archive together are the truth."""
    cursor.execute(MANY.format(3_000))
    stop = threading.Event()
    moved = []

    def move():
        cursor = new_cursor()
        while not stop.is_set():
            moved.append(cursor.execute(MOVE).rowcount)

    thread = threading.Thread(target=move)
    thread.start()
    try:
        for _ in range(3):
            before = len(moved)
            with snapshot(spark, by_jdbc) as held:
                both = [
                    read(spark, table, columns=["id"], partitions=2, snapshot=held)
                    for table in ("jobs", "archive")
                ]
                ids = [row.id for row in both[0].unionByName(both[1]).collect()]
            assert 3_000 == len(ids) == len(set(ids))
            assert len(moved) > before
    finally:
        stop.set()
        thread.join()


def test_a_snapshot_ends_with_its_block(spark, by_jdbc, dsn, tmp_path):
    """Then nothing is read by it, and vacuum waits for nobody."""
    make_job()
    with snapshot(spark, by_jdbc) as held:
        rows = read(spark, "jobs", snapshot=held)
        assert 1 == rows.count()
        with pytest.raises(SparkError, match="of another DSN than the read"):
            read(spark, "jobs", snapshot=held, dsn=DsnSource())

    with pytest.raises(SparkError, match="The snapshot has ended"):
        read(spark, "jobs", snapshot=held)
    with pytest.raises(Exception, match=r"invalid snapshot|does not exist"):
        rows.count()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'pgqueue spark: snapshot'"
        )
        assert (0,) == cursor.fetchone()


def test_without_jdbc_a_table_is_read_through_python(spark, dsn, by_jdbc, caplog):
    """The reason and the way out are said once; a snapshot is refused."""
    (wanted,) = make_jobs(1, queue="mail", kwargs={"token": "x"})
    make_jobs(3)
    driver.tell_once.cache_clear()

    with caplog.at_level(logging.WARNING, logger=driver.log.name):
        for _ in range(2):
            rows = read(spark, "jobs", columns=["id", "kwargs"], where="queue = 'mail'")
            assert [(wanted, '{"token": "[redacted]"}')] == rows.collect()

    (said,) = [record.getMessage() for record in caplog.records]
    assert "read through Python" in said
    assert "a Unix socket" in said
    with (
        snapshot(spark) as held,
        pytest.raises(SparkError, match="A snapshot is for reading by JDBC"),
    ):
        read(spark, "jobs", snapshot=held)


def test_the_driver_is_found_or_named(tmp_path):
    """Debian's, unless the configuration has one; what it names besides stays."""
    jar = tmp_path / "postgresql.jar"
    own = {"spark.jars": "/opt/postgresql-42.jar"}
    by_maven = {"spark.jars.packages": "org.postgresql:postgresql:42.7.7"}

    assert {} == driver.jars({}, jar)
    jar.touch()
    assert {"spark.jars": str(jar)} == driver.jars({}, jar)
    assert {"spark.jars": f"/a.jar,{jar}"} == driver.jars({"spark.jars": "/a.jar"}, jar)
    assert {} == driver.jars(own, jar) == driver.jars(by_maven, jar)
    for way in ("libpostgresql-jdbc-java", "spark.jars", "spark.jars.packages"):
        assert way in driver.NOT_THERE
