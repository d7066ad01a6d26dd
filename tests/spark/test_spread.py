"""Where in a window a row is due follows from its task and key, in Spark too."""

from __future__ import annotations

from datetime import timedelta

import pytest

from django_pgqueue.exceptions import SparkOptionError
from django_pgqueue.spark.fanout import (
    check_key,
    offset_column,
)
from django_pgqueue.timetable.offset import MICROSECOND, offset

DAY = timedelta(days=1)
TASK = "shop.tasks.refresh"


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
