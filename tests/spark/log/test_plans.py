"""What is asked of the log is found by its index."""

from __future__ import annotations

import pytest

from django_pgqueue.spark.connect import FOR_PAGES
from django_pgqueue.spark.log import read
from django_pgqueue.spark.reader import PAGE
from django_pgqueue.spark.slices import Slice
from django_pgqueue.spark.tables import LOG

RANGES = "(0, 1, 2, 10::bigint, 90::bigint)"

STATEMENTS = {
    "page": PAGE.format(
        columns=", ".join(column.sql for column in LOG.columns),
        relation=LOG.relation,
        first=10,
        condition=Slice(10, 90, topic_id=1, partition=2).condition(LOG),
        limit=50_000,
    ),
    "walk": read.WALK.format(
        ranges="(0, 1, 2, 10::bigint, 90::bigint, 7)", condition="true"
    ),
    "ends": read.ENDS.format(ranges=RANGES, condition="true"),
}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_messages_are_found_by_the_index_of_the_log(cursor, publish, statement):
    """In its order, so that nothing is sorted; also without statistics."""
    publish(50)
    with cursor.connection.transaction():
        for setting in FOR_PAGES:
            cursor.execute(setting.replace("SET ", "SET LOCAL ", 1))
        cursor.execute(f"EXPLAIN {statement}")
        plan = "\n".join(line for (line,) in cursor.fetchall())

    assert "topic_id_partition_id_idx" in plan
    assert "Sort  " not in plan
    assert "Seq Scan on pgqueue_message" not in plan
    assert "_pkey on pgqueue_message" not in plan
