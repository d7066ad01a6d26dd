"""
Read: which task reads what of the log, fixed once, on the driver, for all of them.

Up to the horizon, so that a message that is published by an open transaction is left
out together with all that come after it in its topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django_pgqueue.log.browse import days
from django_pgqueue.log.closed_days import ALL_DAYS, closed_days
from django_pgqueue.log.generations import numbers_of
from django_pgqueue.log.horizon import horizons
from django_pgqueue.log.in_partition import FALLING, RISING, within
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.spark.connect import Session
from django_pgqueue.spark.log import offsets
from django_pgqueue.spark.log.offsets import (
    Place,
    Topic,
    check_primary,
    topics,
)
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
            offsets.end_position(end, topic, number, bound),
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


def first_day(cursor: Cursor, ranges: Sequence[Range]) -> datetime | None:
    """
    Return when the first day begins that can have a message of *ranges*.

    By the highest id that a closed day can have, and never by the time of a message.
    None: any day can.
    """
    lowest = min((each.after for each in ranges), default=0)
    since = closed_days(cursor).since(lowest)
    return None if since == ALL_DAYS else datetime.fromisoformat(since)


def _after(begin: Place, topic: Topic, partition: int, horizon: int) -> int:
    if begin.word == offsets.LATEST:
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


# Walk -------------------------------------------------------------------------------
# A batch ends before the first message that it leaves to the next one, or at the
# horizon. So what follows a position is a message that was not read, or came later: a
# position below Topic.removed_to says that messages are lost, and never says so in
# vain.

# Locks: ACCESS SHARE. Messages after a position, up to a bound, at most so many of
# them: index entries of pgqueue_message_log, one range for each partition.
WALK = f"""
SELECT asked.place::int AS place, found.rows, found.last
  FROM (VALUES {{ranges}}) AS asked (place, topic_id, partition, after, upto, most)
 CROSS JOIN LATERAL (
       SELECT count(*) AS rows, max(id) AS last
         FROM (SELECT m.id FROM pgqueue_message m
                WHERE m.topic_id = asked.topic_id AND {{condition}}
                AND {within("asked.partition", after="asked.after", up_to="asked.upto")}
                {RISING} LIMIT asked.most) AS page) AS found
"""

# Ranges in one statement.
RANGES_MAX = 1_000

# Rounds in which what is left of a limit is shared out again.
ROUNDS_MAX = 8

# Messages of one range that are counted, where none are to be left out.
COUNT_MAX = 10_000_000


@dataclass(frozen=True, slots=True)
class Range:
    """Messages of one partition: ids above *after*, up to *upto*."""

    topic_id: int
    partition: int
    after: int
    upto: int
    # How many there are, once they are counted.
    rows: int = 0
    # The highest id that was looked at; None: there is no message.
    seen: int | None = None


def count(
    session: Session,
    ranges: Sequence[Range],
    most: Sequence[int],
    first: datetime | None,
) -> list[tuple[int, int | None]]:
    """Return, for each range, its messages up to *most*, and the last of these."""
    found: list[tuple[int, int | None]] = [(0, None)] * len(ranges)
    condition = "true" if first is None else f"m.published_at >= {moment(first)}"
    for start in range(0, len(ranges), RANGES_MAX):
        some = [
            f"({place}, {each.topic_id}, {each.partition}, {each.after}::bigint, "
            f"{each.upto}::bigint, {most[place]})"
            for place, each in enumerate(ranges[start : start + RANGES_MAX], start)
        ]
        statement = WALK.format(ranges=", ".join(some), condition=condition)
        for row in session.rows(statement):
            found[row["place"]] = (row["rows"], row["last"])
    return found


def counted(
    session: Session, ranges: Sequence[Range], first: datetime | None
) -> list[Range]:
    """Return *ranges* with their rows."""
    found = count(session, ranges, [COUNT_MAX] * len(ranges), first)
    return [
        replace(each, rows=rows, seen=last)
        for each, (rows, last) in zip(ranges, found, strict=True)
    ]


def limited(
    session: Session, ranges: Sequence[Range], rows_max: int, first: datetime | None
) -> list[Range]:
    """
    Return *ranges* cut so that they have *rows_max* messages together, at most.

    Each partition gets the same share, and what one does not need goes to the others.
    The one that is furthest behind comes first where there is not one for each.
    """
    cuts = [replace(each, upto=each.after) for each in ranges]
    going_on = sorted(range(len(ranges)), key=lambda place: ranges[place].after)
    left = rows_max
    for _ in range(ROUNDS_MAX):
        places, going_on = going_on, []
        shares = _shares(left, len(places))
        asked = [replace(ranges[place], after=cuts[place].upto) for place in places]
        # One more than its share: the message before which the batch ends.
        found = count(session, asked, [share + 1 for share in shares], first)
        for place, share, (rows, last) in zip(places, shares, found, strict=True):
            upto, taken = ranges[place].upto, min(rows, share)
            left -= taken
            if rows > share:
                assert last is not None
                upto = last - 1
                going_on.append(place)
            cuts[place] = replace(
                cuts[place],
                upto=upto,
                rows=cuts[place].rows + taken,
                seen=cuts[place].seen if last is None else last,
            )
        if not going_on or left <= 0:
            break
    return cuts


def in_order(
    asked: Sequence[Range], walked: Sequence[Range], now: range
) -> list[Range]:
    """
    Return *walked* cut at one id, where former partitions have messages.

    A key has a partition of each count that its topic has had. A batch that leaves
    messages in one of them ends there in all, so that no later one comes before those.
    At least one message is in it.

    Args:
        asked: The ranges of one topic, as limited() was given them.
        walked: What it has returned.
        now: The partitions that the topic has by now.
    """
    left = [
        (cut.upto, cut.rows)
        for whole, cut in zip(asked, walked, strict=True)
        if cut.upto < whole.upto
    ]
    has_former = any(
        cut.rows or cut.upto < whole.upto
        for whole, cut in zip(asked, walked, strict=True)
        if cut.partition not in now
    )
    if not left or not has_former:
        return list(walked)
    edge, rows = min(left)
    # The first message that is left follows it.
    edge += rows == 0
    return [replace(each, upto=max(each.after, edge)) for each in walked]


def _shares(rows: int, parts: int) -> list[int]:
    """Share out *rows*: as equally as can be, the first get the rest."""
    each, rest = divmod(rows, max(parts, 1))
    return [each + (place < rest) for place in range(parts)]
