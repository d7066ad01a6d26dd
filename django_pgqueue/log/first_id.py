"""
First id: from which id on messages were published at or after a time.

Ids are drawn and times are read when a row is stored, so both rise together, but for
microseconds between two who publish at once. So an id is found by halving the ids of
one day, and no index of times is needed.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django_pgqueue.bounds import TIME_MAX, TIME_MIN
from django_pgqueue.postgres.cursor import Cursor, one_row

# The bounds of the day first, from the ends of its primary key; then each step looks at
# the first message at or after the middle. Days are read through the parent, by a
# condition that leaves one partition. Locks: none.
FIRST_ID = """
WITH RECURSIVE halved(low, high) AS (
    SELECT (SELECT m.id FROM pgqueue_message m
             WHERE m.published_at >= %(day)s AND m.published_at < %(end)s
             ORDER BY m.id LIMIT 1),
           (SELECT m.id + 1 FROM pgqueue_message m
             WHERE m.published_at >= %(day)s AND m.published_at < %(end)s
             ORDER BY m.id DESC LIMIT 1)
    UNION ALL
    SELECT CASE WHEN probe.published_at < %(moment)s THEN probe.id + 1 ELSE low END,
           CASE WHEN probe.published_at < %(moment)s THEN high ELSE middle END
      FROM halved
     CROSS JOIN LATERAL (SELECT low + (high - low) / 2 AS middle) halves
     CROSS JOIN LATERAL (
        SELECT m.id, m.published_at FROM pgqueue_message m
         WHERE m.published_at >= %(day)s AND m.published_at < %(end)s
           AND m.id >= middle
         ORDER BY m.id LIMIT 1) probe
     WHERE low < high
)
SELECT coalesce(
    (SELECT low FROM halved WHERE low >= high),
    (SELECT m.id FROM pgqueue_message m WHERE m.published_at >= %(end)s
      ORDER BY m.id LIMIT 1),
    (SELECT CASE WHEN is_called THEN last_value + 1 ELSE last_value END
       FROM pgqueue_message_id_seq))
"""

DAY = timedelta(days=1)


def first_id(cursor: Cursor, moment: datetime) -> int:
    """
    Return the id from which on messages were published at or after *moment*.

    That is the id of a message, or one above the last of its day; where nothing was
    published since, it is one that none has yet.

    Args:
        cursor: On the database of the log.
        moment: With its zone.
    """
    # No message has a time beyond; a day more would be none that Python knows.
    moment = min(max(moment, TIME_MIN), TIME_MAX).astimezone(UTC)
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    cursor.execute(FIRST_ID, {"day": day, "end": day + DAY, "moment": moment})
    found: int = one_row(cursor)[0]
    return found
