"""
Read: which task reads what of the log, fixed once, on the driver, for all of them.

Up to the horizon, so that a message that is published by an open transaction is left
out together with all that come after it in its topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from django_pgqueue.log.browse import days
from django_pgqueue.log.generations import numbers_of
from django_pgqueue.log.horizon import horizons
from django_pgqueue.log.in_partition import FALLING, RISING, within
from django_pgqueue.spark.connect import Session
from django_pgqueue.spark.log import starting
from django_pgqueue.spark.log.offsets import (
    Topic,
    check_primary,
    first_day,
    topics,
)
from django_pgqueue.spark.log.starting import Place
from django_pgqueue.spark.log.walk import Range
from django_pgqueue.spark.slices import (
    DEFAULT_PARTITIONS_MAX,
    Slice,
    by_bytes,
    divided,
    moment,
)

# Messages that make one more task of a stream's batch.
ROWS_PER_TASK = 50_000

# Locks: ACCESS SHARE, for the two ends of an index.
ENDS = f"""
SELECT asked.place::int AS place,
       (SELECT m.id FROM pgqueue_message m
         WHERE m.topic_id = asked.topic_id
           AND {within("asked.partition", after="asked.after", up_to="asked.upto")}
           AND {{condition}}
         {RISING} LIMIT 1) AS first,
       (SELECT m.id FROM pgqueue_message m
         WHERE m.topic_id = asked.topic_id
           AND {within("asked.partition", after="asked.after", up_to="asked.upto")}
           AND {{condition}}
         {FALLING} LIMIT 1) AS last
  FROM (VALUES {{ranges}}) AS asked (place, topic_id, partition, after, upto)
"""


def plan(
    session: Session,
    *,
    names: Sequence[str] | None,
    begin: Place,
    end: Place,
    partitions: int | None,
) -> list[tuple[Slice, ...]]:
    """
    Divide what the log has by now into one tuple of slices for each task.

    Args:
        names: Of topics; None: all.
        partitions: Tasks, at most; None: by the size of the log.

    Raises:
        SparkError: This is a replica.
        SparkOptionError: There is no such topic.
    """
    cursor = session.cursor()
    check_primary(cursor)
    bounds = horizons(cursor)
    found = topics(cursor, names)
    ranges = [
        Range(
            topic.id,
            number,
            topic.removed_to if begin.time else _after(begin, topic, number, bound),
            starting.end(end, topic, number, bound),
        )
        for topic in found.values()
        for bound in [bounds.of(topic.id)]
        for number in numbers_of(cursor, topic.id)
    ]
    ranges = [each for each in ranges if each.upto > each.after]
    since = max(filter(None, (begin.time, first_day(cursor, ranges))), default=None)
    slices = _ends(session, ranges, since, end.time)
    if partitions is None:
        size = sum(
            day.bytes for day in days(cursor) if not since or day.day >= since.date()
        )
        partitions = by_bytes(size)
    return divided([(each, _ids(each)) for each in slices], partitions)


def tasks(
    ranges: Sequence[Range], partitions: int | None, since: datetime | None
) -> list[tuple[Slice, ...]]:
    """
    Divide the counted *ranges* of a stream's batch among tasks.

    Args:
        partitions: Tasks, at most; None: by the messages.
        since: When the first day begins that has any of them.
    """
    slices = [
        (
            Slice(
                each.after + 1,
                each.upto,
                since=since,
                topic_id=each.topic_id,
                partition=each.partition,
            ),
            each.rows,
        )
        for each in ranges
        if each.rows
    ]
    rows = sum(size for _, size in slices)
    most = DEFAULT_PARTITIONS_MAX if partitions is None else partitions
    return divided(slices, min(1 + rows // ROWS_PER_TASK, most))


def _after(begin: Place, topic: Topic, partition: int, horizon: int) -> int:
    if begin.word == starting.LATEST:
        return horizon
    return begin.position(topic.name, partition, topic.removed_to)


def _ids(part: Slice) -> int:
    return part.last_id - part.first_id + 1


def _ends(
    session: Session,
    ranges: Sequence[Range],
    since: datetime | None,
    until: datetime | None,
) -> list[Slice]:
    """Return a slice for each range that has messages."""
    if not ranges:
        return []
    conditions = [
        f"m.published_at {comparison} {moment(bound)}"
        for comparison, bound in ((">=", since), ("<", until))
        if bound is not None
    ]
    statement = ENDS.format(
        condition=" AND ".join(conditions) or "true",
        ranges=", ".join(
            f"({place}, {each.topic_id}, {each.partition}, {each.after}::bigint, "
            f"{each.upto}::bigint)"
            for place, each in enumerate(ranges)
        ),
    )
    ends = sorted(session.rows(statement), key=lambda row: int(row["place"]))
    return [
        Slice(row["first"], row["last"], since, until, each.topic_id, each.partition)
        for row, each in zip(ends, ranges, strict=True)
        if row["first"] is not None
    ]
