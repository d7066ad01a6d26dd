"""
Ingest lag: how far the files that the pipeline job ingest writes are behind the log.

Derived from the rows when somebody asks; nothing is kept.
"""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from django_pgqueue.log.closed_days import closed_days
from django_pgqueue.log.in_partition import ALL_PARTS, RISING, within
from django_pgqueue.postgres.cursor import Cursor, one_row
from django_pgqueue.postgres.limits import along_index

# A place that was not written to for so long is given up: nobody waits for it.
GIVEN_UP = timedelta(days=7)

# Locks: none; so has the next one.
LEAST = """
SELECT coalesce(min(read_to), 0) FROM pgqueue_ingest_position
 WHERE read_at > clock_timestamp() - %(given_up)s::interval
"""

# A look at the index for each partition, and a bounded count; of places those that were
# written to last.
LAG = f"""
SELECT t.name, p.target, ahead.messages,
       extract(epoch FROM clock_timestamp() - ahead.oldest)::float8
  FROM (SELECT topic_id, target, read_to FROM pgqueue_ingest_position
         WHERE read_at > clock_timestamp() - %(given_up)s::interval
         ORDER BY read_at DESC LIMIT %(places)s) p
  JOIN pgqueue_topic t ON t.id = p.topic_id
 CROSS JOIN LATERAL (
       SELECT count(*) AS messages, min(m.published_at) AS oldest
         FROM {ALL_PARTS}
        CROSS JOIN LATERAL (
              SELECT m.published_at FROM pgqueue_message m
               WHERE m.topic_id = t.id AND {within("part", after="p.read_to")}
                 AND m.published_at >= %(since)s::timestamptz
               {RISING} LIMIT %(limit)s) m) ahead
 ORDER BY t.name, p.target
"""


class IngestLag(NamedTuple):
    """How far the files at a target are behind a topic."""

    topic: str
    target: str
    # Messages that are not there yet; exact below the limit of each partition.
    messages: int
    # Since the oldest of them was published; None: all are there.
    seconds: float | None


def ingest_lag(cursor: Cursor, *, places: int, limit: int) -> list[IngestLag]:
    """
    Return how far each topic is behind at each target, in five short statements.

    Args:
        cursor: On the primary, in a transaction with Plans.IN_ORDER.
        places: So many of them, those that were written to last; none that is GIVEN_UP.
        limit: Count no more messages than that in each partition.
    """
    params = {"given_up": GIVEN_UP, "places": places, "limit": limit}
    cursor.execute(LEAST, params)
    (least,) = one_row(cursor)
    since = closed_days(cursor).since(least)
    with along_index(cursor):
        cursor.execute(LAG, params | {"since": since})
        return [IngestLag(*row) for row in cursor.fetchall()]
