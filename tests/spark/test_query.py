"""The rows of an SQL query, read by Spark and divided among its tasks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection

from django_pgqueue.exceptions import SparkError, SparkOptionError
from django_pgqueue.spark import frames
from django_pgqueue.spark.connect import Session
from django_pgqueue.spark.dsn import DsnSource

pytestmark = pytest.mark.spark

# A value of each type that Spark has.
EVERY = """
SELECT 1::smallint AS two, 2 AS four, 3::bigint AS eight, 1.5::real AS "Real",
       2.5::float8 AS double, true AS yes, 'ä'::varchar(9) AS text,
       '\\x00ff'::bytea AS raw,
       date '2026-03-01' AS day, timestamptz '2026-03-01 10:00+01' AS moment,
       timestamp '2026-03-01 10:00' AS local, 12.50::numeric(10,2) AS price,
       '6ec0bd7f-11c0-43da-975e-2a8ad9ebae0b'::uuid AS uuid, '{"a": 1}'::jsonb AS json,
       NULL::bigint AS none, 7 AS "a `b`"
"""


@pytest.fixture
def numbers(transactional_db: None) -> Iterator[None]:
    """A table of 1,000 rows, every tenth without a number."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE numbers AS SELECT n AS id, nullif(n % 10, 0) * 1000000 + n AS"
            " number FROM generate_series(1, 1000) AS n"
        )
        cursor.execute("ANALYZE numbers")
        yield
        cursor.execute("DROP TABLE numbers")


@pytest.fixture(params=["jdbc", "arrow"])
def rows(request: Any, spark: Any, by_jdbc: DsnSource) -> Callable[..., Any]:
    """``rows("SELECT …", divide_by="id")`` is a DataFrame, by either way."""
    dsn = by_jdbc if request.param == "jdbc" else None

    def rows(sql: str, **options: Any) -> Any:
        return frames.query(spark, sql, dsn=dsn, **options)

    return rows


@pytest.fixture
def session(dsn: str, transactional_db: None) -> Iterator[Session]:
    """A session of the database, as a task has it."""
    with contextlib.closing(Session(dsn, table=None)) as session:
        yield session


def test_columns_of_a_query_have_its_types(rows):
    """With their values, names and NULLs; a comment and a semicolon end nothing."""
    frame = rows(f"{EVERY} -- all of them\n;")

    (row,) = frame.collect()

    assert {
        "two": "smallint",
        "four": "int",
        "eight": "bigint",
        "Real": "float",
        "double": "double",
        "yes": "boolean",
        "text": "string",
        "raw": "binary",
        "day": "date",
        "moment": "timestamp",
        "local": "timestamp_ntz",
        "price": "decimal(10,2)",
        "uuid": "string",
        "json": "string",
        "none": "bigint",
        "a `b`": "int",
    } == dict(frame.dtypes)
    assert (1, 2, 3, 1.5, 2.5, True, "ä", b"\x00\xff", date(2026, 3, 1)) == row[:9]
    assert datetime(2026, 3, 1, 9, tzinfo=UTC) == row["moment"].astimezone(UTC)
    assert datetime(2026, 3, 1, 10) == row["local"]  # noqa: DTZ001 - As it is.
    assert Decimal("12.50") == row["price"]
    assert ("6ec0bd7f-11c0-43da-975e-2a8ad9ebae0b", '{"a": 1}', None, 7) == row[12:]


def test_a_divided_query_gives_each_row_once(spark, by_jdbc, numbers):
    """Those without a value too; by as many tasks as are asked for."""
    sql = "SELECT id, number FROM numbers WHERE id > 100"

    frame = frames.query(spark, sql, divide_by="number", partitions=3, dsn=by_jdbc)
    none = frames.query(
        spark, "SELECT id FROM numbers WHERE id < 0", divide_by="id", dsn=by_jdbc
    )

    assert list(range(101, 1_001)) == sorted(row.id for row in frame.collect())
    assert 3 == frame.rdd.getNumPartitions()
    assert [] == none.collect()


@pytest.mark.parametrize(
    "sql, problem",
    [
        ("SELECT 1", "Column 1 of the query has no name: give it one with AS"),
        ('SELECT 1 AS a, 2 AS "A"', "two columns named A"),
        ("SELECT", "has no column"),
        ("SELECT 1.5 AS share", r"share .* type numeric.*numeric\(12,2\)"),
        ("SELECT ARRAY[1] AS list", r"list .* type .*to text, say"),
        ("SELECT '1.2.3.4'::inet AS ip", "ip .* type inet"),
    ],
)
def test_columns_that_spark_cannot_have_are_refused(session, sql, problem):
    """With their name, their type and what to write instead."""
    with pytest.raises(SparkOptionError, match=problem):
        frames.describe_query(session, sql)


@pytest.mark.parametrize(
    "sql, problem",
    [
        ("SELECT * FROM nowhere", 'take the query: .*"nowhere" does not exist'),
        ("SELECT 1 AS a; DROP TABLE numbers", "take the query: .*syntax error"),
        ("DELETE FROM numbers RETURNING id", "take the query: .*syntax error"),
        (
            "SELECT 1 AS a) AS q; DELETE FROM numbers; SELECT * FROM (SELECT 1 AS a",
            "cannot insert multiple commands",
        ),
    ],
)
def test_a_query_is_one_select(session, numbers, sql, problem):
    """Nothing else is run."""
    with pytest.raises(SparkError, match=problem):
        frames.describe_query(session, sql)


def test_a_query_only_reads(rows):
    """Functions that write are refused by PostgreSQL."""
    with pytest.raises(Exception, match="read-only transaction"):
        rows("SELECT nextval('pgqueue_job_id_seq') AS value").collect()
