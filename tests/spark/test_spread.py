"""Where in a window a row is due follows from its task and key alone."""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta

import pytest

from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.spark.spread import (
    MICROSECOND,
    check_key,
    key_columns,
    offset,
    offset_column,
    window,
)

DAY = timedelta(days=1)
TASK = "shop.tasks.refresh"


def test_offsets_stay_what_they_are():
    """Tomorrow, elsewhere, and in the next version: these were written down."""
    assert (
        timedelta(seconds=24_062, microseconds=604_425),
        timedelta(seconds=12_462, microseconds=909_946),
        timedelta(seconds=62_324, microseconds=795_692),
    ) == (
        offset(TASK, [7], DAY),
        offset(TASK, ["anna", 7], DAY),
        offset("shop.tasks.bill", [7], DAY),
    )


def test_a_key_is_the_same_wherever_it_comes_from():
    """A file has texts, a table numbers."""
    assert offset(TASK, [7], DAY) == offset(TASK, ["7"], DAY)


def test_offsets_are_spread_evenly():
    """
    Of 100,000 customers over 24 hours, each minute gets its share.

    The sum of squares is that of chance: chi-square of 1,439 degrees of freedom has a
    mean of 1,439 and a deviation of 54.
    """
    minutes = Counter(
        offset(TASK, [customer], DAY) // timedelta(minutes=1)
        for customer in range(1, 100_001)
    )
    expected = 100_000 / 1_440
    square = sum((minutes[n] - expected) ** 2 / expected for n in range(1_440))

    assert 1_439 - 4 * 54 < square < 1_439 + 4 * 54
    assert set(range(1_440)) == set(minutes)


def test_two_tasks_do_not_coincide():
    """A customer's moment for one says nothing of that for another."""
    near = sum(
        abs(offset("a.b", [n], DAY) - offset("a.c", [n], DAY)) < timedelta(minutes=1)
        for n in range(10_000)
    )

    # 1 of 720 by chance: 14.
    assert near < 40


@pytest.mark.spark
def test_spark_says_the_same_whatever_the_partitions(spark):
    """As the plain function does, for each type that a key may have."""
    frame = spark.range(0, 2_000, 1, 7).selectExpr(
        "id",
        "cast(id AS int) AS small",
        "concat('ä\"', id) AS text",
        "date_add(date'2026-01-01', cast(id AS int)) AS day",
        "id % 2 = 0 AS even",
    )
    keys = (("id",), ("small",), ("text", "id"), ("day",), ("even", "text"))
    columns = [offset_column(TASK, key, DAY).alias(f"at {key}") for key in keys]

    for parts in (1, 3):
        for row in frame.repartition(parts).select("*", *columns).collect():
            assert [
                offset(TASK, [row[name] for name in key], DAY) // MICROSECOND
                for key in keys
            ] == [row[f"at {key}"] for key in keys]


def test_a_window_has_limits():
    """More than nothing, and a year at most."""
    assert timedelta(days=366) == window("366d")
    for text in ("0s", "367d"):
        with pytest.raises(SparkOptionError, match="more than nothing and at most 366"):
            window(text)
    with pytest.raises(SparkOptionError, match="over is 'soon': write a duration"):
        window("soon")


def test_a_key_names_columns():
    """Each once."""
    assert ("region", "id") == key_columns(" region, id")
    for text in ("", "a,", "a,a", ",".join("abcdefghijk")):
        with pytest.raises(SparkOptionError, match="must name 1 to 10 columns"):
            key_columns(text)


@pytest.mark.spark
def test_a_key_has_one_text_for_each_value(spark):
    """What two sources would write differently is refused."""
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL("id bigint, at timestamp, share double, day date")

    check_key(schema, ("id", "day"))
    with pytest.raises(
        SparkOptionError, match=r"'ids' is no column\. Did you mean 'id'"
    ):
        check_key(schema, ("ids",))
    for name in ("at", "share"):
        with pytest.raises(SparkOptionError, match="cast it to a string"):
            check_key(schema, (name,))


def test_dates_and_truths_are_texts_as_spark_writes_them():
    """So that the plain function can tell when a row is due."""
    assert offset(TASK, ["2026-01-01", "true"], DAY) == offset(
        TASK, [date(2026, 1, 1), True], DAY
    )
