"""
Sizes: how many bytes of the log each topic has, and which days fit within a bound.

A day's own size is that of its files. What a topic has of a day is estimated from pages
at random: so many and no more, however large the day is. A closed day is looked at
once, and the estimate stands in its row.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from psycopg import sql

from django_pgqueue.log.browse import Day, days
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.day_tables import DAY, LOG, today

# Pages that are read of a day, 8 MB; a day that has no more is counted exactly. Where
# that does not add up to the size of its files, as where few rows have most of it, four
# times as many are read, and so on.
SAMPLED_PAGES, SAMPLED_PAGES_MAX = 1_000, 16_000
# What it may be off, of the size of the files.
OFF_SHARE_MAX = 0.25

# What a message takes beside its texts and JSON: the head of its row, its numbers, and
# an entry in each of the two indexes, with the room that is left in their pages.
ROW_BYTES = 150

# A part of the pages, in percent, each drawn for itself. pg_column_size() reads no text
# that is stored apart. Locks: none; so have all of these, where nothing else is said.
SAMPLE = f"""
SELECT m.topic_id,
       (sum({ROW_BYTES} + pg_column_size(m.payload) + pg_column_size(m.headers)
            + pg_column_size(m.name) + coalesce(pg_column_size(m.key), 0))
        * 100 / %(percent)s::float8)::bigint
  FROM {{table}} m TABLESAMPLE SYSTEM (%(percent)s::real)
 GROUP BY m.topic_id
"""

NOTED = "SELECT day, topic_bytes FROM pgqueue_log_day ORDER BY day"

# Locks: a row lock on the day's row.
NOTE_DAY = """
UPDATE pgqueue_log_day SET topic_bytes = %(bytes)s::jsonb WHERE day = %(day)s
"""
# Locks: as NOTE_DAY.
FORGET_TOPIC = """
UPDATE pgqueue_log_day SET topic_bytes = topic_bytes - %(topic)s::text
 WHERE day = %(day)s AND topic_bytes ? %(topic)s::text
"""
# Locks: row locks on the topics, for the statement. One that somebody has locked is
# left out: who seeks or declares locks several, and would wait for this one.
NOTE_TOPICS = """
WITH free AS MATERIALIZED (
    SELECT t.id FROM pgqueue_topic t FOR NO KEY UPDATE SKIP LOCKED)
UPDATE pgqueue_topic t
   SET log_bytes = coalesce(noted.bytes, 0), log_bytes_at = clock_timestamp()
  FROM free
  LEFT JOIN unnest(%(topics)s::int[], %(bytes)s::bigint[]) AS noted(id, bytes)
       USING (id)
 WHERE t.id = free.id
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the days are, and what topics have of each."""

    days: Mapping[date, int] = field(default_factory=dict)
    topics: Mapping[date, Mapping[int, int]] = field(default_factory=dict)

    def of_topic(self, topic_id: int) -> dict[date, int]:
        """Return what a topic has of each day."""
        return {day: each.get(topic_id, 0) for day, each in self.topics.items()}

    def by_topic(self) -> dict[int, int]:
        """Return what each topic has of all days."""
        total: dict[int, int] = {}
        for each in self.topics.values():
            for topic_id, size in each.items():
                total[topic_id] = total.get(topic_id, 0) + size
        return total


def noted(cursor: Cursor) -> dict[date, dict[int, int]]:
    """Return what was noted of closed days: bytes by topic."""
    cursor.execute(NOTED)
    return {
        day: {int(topic_id): size for topic_id, size in _data(noted).items()}
        for day, noted in cursor.fetchall()
        if noted is not None
    }


def unmeasured(cursor: Cursor) -> list[Day]:
    """Return the days to measure: those that are not noted, and not ahead."""
    known, now = noted(cursor), today(cursor)
    return [each for each in days(cursor) if each.day <= now and each.day not in known]


def measure(cursor: Cursor, day: Day) -> dict[int, int]:
    """
    Estimate what topics have of a day, and note it if the day is closed.

    Args:
        cursor: In autocommit.
        day: Which.

    Returns:
        Bytes by topic.
    """
    statement = sql.SQL(SAMPLE).format(table=sql.Identifier(LOG.name_of(day.day)))
    found: dict[int, int] = {}
    pages = SAMPLED_PAGES
    while True:
        percent = min(100.0, 100.0 * pages / max(day.pages, 1))
        cursor.execute(statement, {"percent": percent})
        found = dict(cursor.fetchall())
        off = abs(sum(found.values()) - day.bytes)
        pages *= 4
        if (
            off <= OFF_SHARE_MAX * day.bytes
            or percent == 100.0
            or pages > SAMPLED_PAGES_MAX
        ):
            break
    # Of a day that is not closed there is no row.
    cursor.execute(NOTE_DAY, {"day": day.day, "bytes": json.dumps(found)})
    return found


def forget_topic(cursor: Cursor, topic_id: int, day: date) -> None:
    """Note that a topic has nothing of a day any more."""
    cursor.execute(FORGET_TOPIC, {"topic": str(topic_id), "day": day})


def note_topics(cursor: Cursor, sizes: Mapping[int, int]) -> None:
    """Write down what each topic has, for people. In autocommit."""
    params = {"topics": list(sizes), "bytes": list(sizes.values())}
    cursor.execute(NOTE_TOPICS, params)


def first_within(
    sizes: Mapping[date, int], bytes_max: int | None, closed: Container[date]
) -> date | None:
    """
    Return the first day that is kept by a bound, counted from the newest one.

    Args:
        sizes: Of each day.
        bytes_max: The bound; None: there is none.
        closed: The days that can go. Others count, and stay.

    Returns:
        The day; None: all fit, or none that does not can go.
    """
    if bytes_max is None:
        return None
    total = 0
    for day in sorted(sizes, reverse=True):
        total += sizes[day]
        if total > bytes_max and day in closed:
            return day + DAY
    return None


def latest(days: Sequence[date | None]) -> date | None:
    """Return the latest of some days; None stands for no bound."""
    return max(filter(None, days), default=None)


def _data(value: object) -> dict[str, int]:
    # Django's cursors give JSON as text.
    found = json.loads(value) if isinstance(value, str) else value
    return found if isinstance(found, dict) else {}
