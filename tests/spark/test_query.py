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
from django_pgqueue.spark import frames, query, snapshot
from django_pgqueue.spark.connect import Session
from django_pgqueue.spark.dsn import DsnSource
from tests.spark.conftest import PASSWORD

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


def test_a_query_without_a_row_has_its_columns(rows):
    """Of all types, as with rows."""
    frame = rows(f"SELECT * FROM ({EVERY}) AS every WHERE false")

    assert [] == frame.collect()
    assert ["price", "decimal(10,2)"] == list(frame.dtypes[11])


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


def test_a_query_in_a_snapshot_sees_it(spark, by_jdbc, numbers, cursor):
    """And nothing that was done since."""
    with snapshot(spark, by_jdbc) as held:
        frame = frames.query(spark, "SELECT id FROM numbers", snapshot=held)
        cursor.execute("DELETE FROM numbers")
        assert 1_000 == frame.count()


def test_the_password_is_in_no_plan(rows):
    """The query is, and no secret of the DSN."""
    plan = rows("SELECT 1 AS one")._jdf.queryExecution().toString()

    assert PASSWORD not in plan


def test_rows_that_postgresql_expects_make_tasks(session, numbers, monkeypatch):
    """One for so many; between the ends of the column."""
    monkeypatch.setattr(query, "ROWS_PER_PARTITION", 300)
    sql = "SELECT id FROM numbers"
    columns = query.describe(session, sql)

    assert {
        "column": "id",
        "lowerBound": 1,
        "upperBound": 1_000,
        "numPartitions": 4,
    } == query.divide(session, sql, columns, "id", None)
    assert 2 == query.divide(session, sql, columns, "id", 2)["numPartitions"]


@pytest.mark.parametrize("sql", ["", " ; ", "SELECT '\0'", "x" * 100_001])
def test_what_can_be_no_query_is_refused_before_it_is_sent(sql):
    """With its length, and the limit."""
    with pytest.raises(SparkOptionError, match="must be a SELECT of up to 100,000"):
        frames.query(None, sql)


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
        query.describe(session, sql)


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
        query.describe(session, sql)


def test_operators_see_who_reads(rows):
    """By the name of the session; so what the URL says comes to the driver."""
    (row,) = rows("SELECT current_setting('application_name') AS name").collect()

    assert "pgqueue spark: query" == row.name


def test_a_query_only_reads(rows):
    """Functions that write are refused by PostgreSQL."""
    with pytest.raises(Exception, match="read-only transaction"):
        rows("SELECT nextval('pgqueue_job_id_seq') AS value").collect()


def test_a_column_that_cannot_divide_is_refused(session, numbers):
    """One that there is not, or that has no whole numbers."""
    sql = "SELECT id, 'x' AS text FROM numbers"
    columns = query.describe(session, sql)

    for name, problem in (
        ("ids", "'ids', which is no column of the query. Did you mean 'id'"),
        ("text", "'text', of the type string; it must be a column of whole numbers"),
    ):
        with pytest.raises(SparkOptionError, match=problem):
            query.divide(session, sql, columns, name, 2)
