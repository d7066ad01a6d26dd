"""Rows of a DataFrame become jobs, in real Spark and in a real database."""

from __future__ import annotations

import re

import pytest
from pyspark.errors import PySparkException

from django_pgqueue.spark.write.result import read_result
from django_pgqueue.tasks.payload import decode
from tests.harness.notices import heard_until_now
from tests.spark.write.conftest import jobs, journal, stages

pytestmark = [pytest.mark.spark, pytest.mark.smoke]


def test_columns_place_a_job(spark, write, database):
    """Task, queue, time and the like are taken from columns of those names."""
    frame = spark.sql(
        """
        SELECT 'a.b' AS task, 'q' AS queue, 7 AS priority, 2 AS max_attempts,
               timestamp'2030-01-01 10:00:00' AS run_at,
               timestamp'2031-01-01 10:00:00' AS expires_at,
               array('x', 'y') AS tags, map('h', 1) AS headers,
               named_struct('id', 1, 'inner', named_struct('n', 1.5D)) AS kwargs,
               array(1, 2) AS args
        """
    )

    write(frame, tags="z")

    assert [
        (
            "a.b",
            "q",
            7,
            2,
            "2030-01-01T10:00:00+00:00",
            "2031-01-01T10:00:00+00:00",
            {"h": 1, "tags": ["z", "x", "y"]},
            {"id": 1, "inner": {"n": 1.5}},
            [1, 2],
        )
    ] == jobs(
        database,
        "task, queue, priority, max_attempts, to_jsonb(run_after AT TIME ZONE 'UTC')"
        " #>> '{}' || '+00:00', to_jsonb(expires_at AT TIME ZONE 'UTC') #>> '{}'"
        " || '+00:00', headers, kwargs, args",
    )


def test_a_task_reads_the_types_that_spark_has(spark, write, database):
    """Times, decimals and bytes come back as what delay() would have stored."""
    from datetime import UTC, date, datetime, timedelta
    from decimal import Decimal

    frame = spark.sql(
        """
        SELECT date'2026-03-01' AS day, timestamp'2026-03-01 10:00:00.5' AS moment,
               timestamp_ntz'2026-03-01 10:00:00' AS local, 1.50 AS price,
               X'00ff' AS raw, interval '1' day AS pause, 1e17D AS large, NULL AS none,
               'q"\\n' AS text, true AS yes, 3.0D AS whole
        """
    )

    write(frame, task="a.b", name="types")

    assert [("committed", 1, 0, 0)] == journal(
        database, "state, written, skipped, refused"
    )
    ((text,),) = jobs(database, "kwargs::text")
    assert {
        "day": date(2026, 3, 1),
        "moment": datetime(2026, 3, 1, 10, 0, 0, 500_000, tzinfo=UTC),
        "local": datetime(2026, 3, 1, 10),  # noqa: DTZ001 - As it is.
        "price": Decimal("1.50"),
        "raw": b"\x00\xff",
        "pause": timedelta(days=1),
        "large": 1e17,
        "none": None,
        "text": 'q"\n',
        "yes": True,
        "whole": 3.0,
    } == decode("[]", text)[1]


def test_one_refused_row_fails_the_write(spark, write, database):
    """The error names the first rows and the reasons; nothing is written."""
    frame = spark.sql(
        "SELECT id, if(id = 5, double('NaN'), 1.5D) AS amount FROM range(10)"
    ).coalesce(1)

    with pytest.raises(
        PySparkException, match=r"Row 6 of partition 0: kwargs\.amount is nan"
    ):
        write(frame, task="a.b", name="fails")

    assert [] == jobs(database)
    assert [("rolled_back",)] == journal(database, "state")
    assert [] == stages(database)


def test_refused_rows_are_written_aside(spark, write, database, tmp_path):
    """With refusedPath the others become jobs, and the refused are Parquet."""
    frame = spark.sql(
        "SELECT id, if(id % 4 = 1, 500, 1) AS priority FROM range(0, 100, 1, 2)"
    )
    path = tmp_path / "refused"

    write(frame, task="a.b", refusedPath=str(path), name="aside")

    refused = spark.read.parquet(str(path)).orderBy("id").collect()
    assert 75 == len(jobs(database))
    assert list(range(1, 100, 4)) == [row.id for row in refused]
    assert {"priority is 500; it must be from -100 to 100"} == {
        row.refused_reason for row in refused
    }
    assert not list(path.rglob("_pending/*"))


def test_a_caller_can_ask_what_became_of_a_write(spark, write, database, server):
    """By the name that it gave, the journal tells the numbers."""
    database.execute("INSERT INTO pgqueue_job (task, dedup_key) VALUES ('x', 'k3')")
    frame = spark.sql(
        "SELECT id, concat('k', id % 8) AS dedup_key FROM range(10) WHERE id <> 7"
    )

    write(frame, task="a.b", queue="mail", name="orders 2026-03-01")

    result = read_result(server.url, "orders 2026-03-01")
    assert ("committed", 6, 3, 0, ["mail"]) == (
        result.state,
        result.written,
        result.skipped,
        result.refused,
        result.queues,
    )
    assert 7 == len(jobs(database))
    assert read_result(server.url, "another") is None


def test_a_name_is_written_once(spark, write, database):
    """A second write of the same name is refused, and says when the first was."""
    write(spark.range(3), task="a.b", name="once")

    with pytest.raises(PySparkException, match="was committed already"):
        write(spark.range(3), task="a.b", name="once")

    assert 3 == len(jobs(database))


def test_rows_of_a_key_wait_for_one_another(spark, write, server, database):
    """They are parked in lanes, and workers look at what came since the write began."""
    with server.connect() as listener:
        (channel,) = listener.execute("SELECT pgqueue_channel()").fetchone()
        listener.execute(f'LISTEN "{channel}"')
        frame = spark.sql(
            "SELECT CASE WHEN id < 9 THEN id % 3 END AS customer, id FROM range(10)"
        )

        write(
            frame,
            task="a.b",
            laneBy="customer",
            laneCapacity="5",
            laneSpacing="0.5",
            lanePolicy="skip",
        )

        heard = heard_until_now(listener, channel)
    columns = "lane, lane_capacity, lane_spacing, lane_burst, lane_policy, visible_at"
    made = jobs(database, f"{columns} IS NULL")
    lanes = [(f"a.b:{n}", 5, 0.5, None, "skip", True) for n in range(3)] * 3
    assert sorted(lanes) == sorted(row for row in made if row[0] is not None)
    assert [False] == [row[-1] for row in made if row[0] is None]
    assert ["default", "!fair:default"] == heard[:2]
    assert re.fullmatch(r"!lanes[1-9][0-9]*", heard[2])
    assert 3 == len(heard)


def test_a_role_that_may_make_no_table_is_told_the_ways_out(
    spark, database, server, tmp_path
):
    """GRANT, or stageSchema; and stageSchema works."""
    from psycopg.conninfo import make_conninfo

    database.execute("DROP ROLE IF EXISTS writer")
    database.execute("CREATE ROLE writer LOGIN PASSWORD 'w'")
    database.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    database.execute("CREATE SCHEMA stages AUTHORIZATION writer")
    database.execute("GRANT INSERT, SELECT ON pgqueue_job TO writer")
    database.execute(
        "GRANT SELECT, INSERT, UPDATE, DELETE ON pgqueue_spark_write TO writer"
    )
    secret = tmp_path / "dsn"
    secret.write_text(make_conninfo(server.url, user="writer", password="w"))
    frame = spark.range(5).write.format("pgqueue").mode("append")
    frame.options(dsnFile=str(secret), task="a.b")
    try:
        with pytest.raises(PySparkException, match=r"may make no table.*stageSchema"):
            frame.save()
        frame.option("stageSchema", "stages").save()

        assert 5 == len(jobs(database))
        assert [] == stages(database)
    finally:
        database.execute("DROP OWNED BY writer CASCADE")
        database.execute("DROP ROLE writer")
