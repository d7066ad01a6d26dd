"""
Walk: how far so many messages go in each partition, counted along the index.

A batch ends before the first message that it leaves to the next one, or at the horizon.
So what follows a position is a message that was not read, or came later: a position
below Topic.removed_to says that messages are lost, and never says so in vain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django_pgqueue.log.in_partition import RISING, within
from django_pgqueue.spark.connect import Session
from django_pgqueue.spark.slices import moment

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
