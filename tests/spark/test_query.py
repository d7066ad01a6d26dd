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
from django_pgqueue.spark import query
from django_pgqueue.spark.connect import Session
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


@pytest.fixture
def rows(spark: Any, transactional_db: None) -> Callable[..., Any]:
    """``rows("SELECT …", divideBy="id")`` is a DataFrame."""

    def rows(sql: str, **options: Any) -> Any:
        reader = spark.read.format("pgqueue").option("query", sql)
        return reader.options(**options).load()

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


def test_a_divided_query_gives_each_row_once(rows, numbers):
    """Those without a value too; it is read where a schema says in its types."""
    frame = rows(
        "SELECT id, number FROM numbers WHERE id > 100", divideBy="number", partitions=3
    )

    found = [row.id for row in frame.collect()]

    assert list(range(101, 1_001)) == sorted(found)
    assert 3 == frame.rdd.getNumPartitions()


def test_a_schema_casts(spark, transactional_db):
    """And leaves columns out."""
    reader = spark.read.format("pgqueue").option("query", "SELECT 1 AS a, 2.25 AS b")

    (row,) = reader.schema("b decimal(9,3), a string").load().collect()

    assert (Decimal("2.250"), "1") == tuple(row)
    with pytest.raises(Exception, match=r"a of the query is asked for as array<int>"):
        reader.schema("a array<int>").load().collect()


def test_the_password_is_in_no_plan(rows):
    """The query is, and no secret of the DSN."""
    plan = rows("SELECT 1 AS one")._jdf.queryExecution().toString()

    assert PASSWORD not in plan


def test_a_query_is_divided_into_short_statements(session, numbers, monkeypatch):
    """As many as its rows ask for, which tasks share."""
    monkeypatch.setattr(query, "PAGE_ROWS_MAX", 100)

    tasks = query.plan(
        session, "SELECT id FROM numbers", divide_by="id", partitions=None
    )
    two = query.plan(session, "SELECT id FROM numbers", divide_by="id", partitions=2)
    none = query.plan(
        session, "SELECT id FROM numbers WHERE id < 0", divide_by="id", partitions=2
    )

    (conditions,) = tasks
    assert ('"id" IS NULL', '"id" BETWEEN 1 AND 90') == conditions[:2]
    assert 12 == len(conditions)
    assert [6, 6] == [len(each) for each in two]
    assert conditions == two[0] + two[1]
    assert [('"id" IS NULL',)] == none


def test_ranges_touch_and_do_not_overlap():
    """Whatever the numbers."""
    assert [(1, 3), (4, 6), (7, 10)] == query.cut(1, 10, 3)
    assert [(-5, -5), (-4, -4)] == query.cut(-5, -4, 9)
    wide = query.cut(-(2**63), 2**63 - 1, 3)
    assert (-(2**63), 2**63 - 1) == (wide[0][0], wide[-1][1])


def test_no_snapshot_waits_for_spark(session):
    """A statement is at its end before its first batch is given away."""
    # More than the driver's first batch and what sockets hold, and less than a page.
    sql = "SELECT repeat('x', 200) AS text FROM generate_series(1, 150000)"
    columns = query.describe(session, sql)
    read = query.read(session, sql, columns, [""], rows_per_second=None)

    next(read)

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT state FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'pgqueue spark: query'"
        )
        assert [("idle",)] == cursor.fetchall()
    assert [*read]


def test_a_pace_is_kept(session, numbers):
    """After each statement, for its rows."""
    waits = []
    columns = query.describe(session, "SELECT id FROM numbers")

    list(
        query.read(
            session,
            "SELECT id FROM numbers",
            columns,
            ["id <= 500", "id > 500"],
            rows_per_second=1_000,
            wait=waits.append,
        )
    )

    assert [0.5, 1.0] == pytest.approx(waits, abs=0.3)


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


def test_a_query_only_reads(session, numbers):
    """Functions that write are refused by PostgreSQL."""
    columns = (query.QueryColumn("value", "bigint"),)
    sql = "SELECT nextval('pgqueue_job_id_seq') AS value"

    with pytest.raises(SparkError, match="read-only transaction"):
        list(query.read(session, sql, columns, [""], rows_per_second=None))


def test_a_column_that_cannot_divide_is_refused(session, numbers):
    """One that there is not, or that has no whole numbers."""
    for name, problem in (
        ("ids", "'ids', which is no column of the query. Did you mean 'id'"),
        ("text", "'text', of the type string; it must be a column of whole numbers"),
    ):
        with pytest.raises(SparkOptionError, match=problem):
            query.plan(
                session,
                "SELECT id, 'x' AS text FROM numbers",
                divide_by=name,
                partitions=2,
            )
