"""What is left to PostgreSQL, and what to Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_pgqueue.spark.connect import Session
from django_pgqueue.spark.filters import IN_VALUES_MAX, Period, as_sql, divide, period
from django_pgqueue.spark.tables import ARCHIVE, JOBS
from tests.spark.conftest import require

pytestmark = pytest.mark.spark

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def f():
    """The filters of Spark."""
    require("pyspark")
    from pyspark.sql import datasource

    return datasource


def test_numbers_times_and_booleans_are_compared_by_postgresql(f):
    """Both order them alike."""
    east = NOON.astimezone(timezone(timedelta(hours=5)))

    assert as_sql(f.GreaterThan(("priority",), 3), JOBS) == "priority > 3"
    assert as_sql(f.EqualTo(("runs_alone",), True), JOBS) == "runs_alone = true"
    assert as_sql(f.LessThanOrEqual(("visible_at",), east), JOBS) == (
        "visible_at <= '2026-01-01 12:00:00.000000+00:00'::timestamptz"
    )
    assert as_sql(f.Not(f.In(("id",), [1, 2])), JOBS) == "NOT (id IN (1, 2))"
    assert as_sql(f.IsNull(("leased_by",)), JOBS) == "leased_by IS NULL"


def test_texts_are_compared_for_equality_alone(f):
    """Their order is the collation's here and that of bytes there."""
    assert as_sql(f.EqualTo(("task",), "a"), JOBS) == "task = E'a'"
    assert as_sql(f.EqualNullSafe(("lane",), "a"), JOBS) == (
        "lane IS NOT DISTINCT FROM E'a'"
    )
    assert as_sql(f.In(("queue",), ("a", "b")), JOBS) == "queue IN (E'a', E'b')"
    assert as_sql(f.StringStartsWith(("task",), "shop."), JOBS) == (
        "starts_with(task, E'shop.')"
    )
    for kind in (f.GreaterThan, f.GreaterThanOrEqual, f.LessThan, f.LessThanOrEqual):
        assert as_sql(kind(("task",), "a"), JOBS) is None
    assert as_sql(f.StringEndsWith(("task",), "a"), JOBS) is None


def test_fractions_are_left_to_spark(f):
    """Which of them are equal is not for a text to say."""
    for kind in (f.EqualTo, f.EqualNullSafe, f.GreaterThan, f.LessThanOrEqual):
        assert as_sql(kind(("lane_spacing",), 0.6), JOBS) is None
    assert as_sql(f.In(("lane_spacing",), [0.6]), JOBS) is None
    assert as_sql(f.IsNull(("lane_spacing",)), JOBS) == "lane_spacing IS NULL"


def test_columns_with_secrets_are_never_compared(f):
    """A condition on what is masked would answer from what is not."""
    for kind in (f.EqualTo, f.StringStartsWith, f.GreaterThan):
        assert as_sql(kind(("kwargs",), "{}"), JOBS) is None
        assert as_sql(f.Not(kind(("kwargs",), "{}")), JOBS) is None
    assert as_sql(f.IsNull(("result",)), ARCHIVE) == "result IS NULL"


@pytest.mark.parametrize(
    "column, value",
    [
        ("task", "nul\0"),
        ("task", "half \ud800"),
        ("id", 2**63),
        ("id", True),
        ("id", "1"),
        ("runs_alone", 1),
        ("visible_at", NOON.replace(tzinfo=None)),
        ("unknown", 1),
    ],
)
def test_what_postgresql_cannot_read_is_left_to_spark(f, column, value):
    """It is refused in no statement."""
    assert as_sql(f.EqualTo((column,), value), JOBS) is None
    assert as_sql(f.In((column,), [value]), JOBS) is None


def test_a_long_list_is_left_to_spark(f):
    """So is an empty one."""
    assert as_sql(f.In(("id",), range(IN_VALUES_MAX + 1)), JOBS) is None
    assert as_sql(f.In(("id",), []), JOBS) is None


def test_filters_are_divided(f):
    """What is not taken is given back as it was."""
    mine, theirs = f.EqualTo(("id",), 1), f.GreaterThan(("task",), "a")

    assert (["id = 1"], [theirs]) == divide([mine, theirs], JOBS)


def test_the_period_is_what_the_filters_leave(f):
    """A bound that is reached counts as within."""
    later = NOON + timedelta(hours=1)
    microsecond = timedelta(microseconds=1)
    column = ("finished_at",)

    assert Period() == period([f.EqualTo(("id",), 1)], ARCHIVE)
    assert Period(NOON, later + microsecond) == period(
        [f.GreaterThan(column, NOON), f.LessThanOrEqual(column, later)], ARCHIVE
    )
    at_noon = [f.EqualTo(column, NOON)]
    assert Period(NOON, NOON + microsecond) == period(at_noon, ARCHIVE)
    assert Period() == period(
        [f.LessThan(column, datetime(9999, 12, 31, tzinfo=UTC))], ARCHIVE
    )


def test_texts_reach_postgresql_as_they_are(f, transactional_db, dsn):
    """Quotes, backslashes and anything else that a text may have."""
    with Session(dsn, table="jobs") as session:

        @given(TEXTS)
        def compare(text):
            found = as_sql(f.EqualTo(("task",), text), JOBS)
            written = found.removeprefix("task = ")
            assert [{"text": text}] == session.rows(f"SELECT {written} AS text")

        compare()
