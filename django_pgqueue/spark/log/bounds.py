"""
Bounds: topics, horizons and days, which a read of the log must know before it begins.

The order matters. The horizon comes first, in a statement of its own: a message up to
it is visible to every later statement, or was rolled back. See log/horizon.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any

from django_pgqueue.exceptions import SparkError, SparkOptionError, did_you_mean
from django_pgqueue.log.horizon import HORIZONS, Horizons
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.spark.slices import moment

# Locks: none. Which database this is, and whether it knows who publishes.
WHO = """
SELECT pg_is_in_recovery() AS is_replica, pgqueue_installation()::text AS installation
"""

# Locks: ACCESS SHARE.
TOPICS = """
SELECT id, name::text AS name, first_partition::int AS first_partition,
       partitions::int AS partitions, removed_to
  FROM pgqueue_topic ORDER BY name
"""

# Locks: none. Each day of the log that has a table, the highest id that can be in it if
# it is over, and its bytes.
DAYS = """
SELECT of.day, closed.last_id, of.bytes
  FROM (SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day,
               pg_table_size(c.oid) AS bytes
          FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = 'pgqueue_message'::regclass
           AND c.relname ~ '^pgqueue_message_[0-9]{8}$'
           AND NOT coalesce(i.inhdetachpending, false)) of
  LEFT JOIN pgqueue_log_day closed USING (day)
 ORDER BY of.day
"""

# Locks: ACCESS SHARE. Partitions that have messages: also those that a topic had before
# their count was changed. One look at the index for each that is found, and one that
# finds none.
SEEN = """
WITH RECURSIVE seen AS (
    SELECT t.id AS topic_id,
           (SELECT min(m.partition) FROM pgqueue_message m
             WHERE m.topic_id = t.id) AS partition
      FROM pgqueue_topic t WHERE t.id IN ({topics})
    UNION ALL
    SELECT seen.topic_id,
           (SELECT min(m.partition) FROM pgqueue_message m
             WHERE m.topic_id = seen.topic_id AND m.partition > seen.partition)
      FROM seen WHERE seen.partition IS NOT NULL
)
SELECT topic_id, partition::int AS partition FROM seen WHERE partition IS NOT NULL
"""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, as it was at one moment."""

    id: int
    name: str
    first_partition: int
    partitions: int
    # Up to which id retention has removed messages, or is about to.
    removed_to: int

    @property
    def numbers(self) -> range:
        """The partitions that it has by now."""
        return range(self.first_partition, self.first_partition + self.partitions)


@dataclass(frozen=True, slots=True)
class Day:
    """A day of the log (UTC)."""

    day: date
    # The highest id that can be in it; None: the day is not known to be over.
    last_id: int | None
    bytes: int


def check_primary(session: Any) -> str:
    """
    Return the installation that *session* is connected to.

    Raises:
        SparkError: It is a replica, which does not know who publishes.
    """
    (said,) = session.rows(WHO)
    if said["is_replica"]:
        raise SparkError(
            "The log of topics is read from the primary: a replica does not see who "
            "publishes at the moment, so that a read of it would pass over messages. "
            "Let the DSN (PGQUEUE_DSN, dsnEnv or dsnFile) name the primary."
        )
    return str(said["installation"])


def horizons(session: Any) -> Horizons:
    """Return up to which id each topic can be read, by later statements."""
    bounds = {row["topic_id"]: row["bound"] for row in session.rows(HORIZONS)}
    return Horizons(bounds.pop(None), bounds)


def topics(session: Any, names: Sequence[str] | None) -> dict[str, Topic]:
    """
    Return the topics *names*, or all that there are, by their names.

    Raises:
        SparkOptionError: There is no such topic.
    """
    known = {row["name"]: Topic(**row) for row in session.rows(TOPICS)}
    if names is None:
        return known
    _check_known(names, known)
    return {name: known[name] for name in names}


def check_topics(cursor: Cursor, names: Sequence[str]) -> None:
    """
    Raise SparkOptionError unless there are the topics *names*.

    Args:
        cursor: Of psycopg: asked before Spark starts, so without what Spark needs.
        names: Those that are to be read.
    """
    cursor.execute(TOPICS)
    _check_known(names, [name for _, name, *_ in cursor.fetchall()])


def _check_known(names: Sequence[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise SparkOptionError(
                f"There is no topic {name!r}.{did_you_mean(name, list(known))} "
                f"A topic is made by migrating code that declares it, or by its first "
                f"message."
            )


def partitions_of(session: Any, found: Collection[Topic]) -> dict[int, list[int]]:
    """Return the partitions of each topic by its id: those it has, and has had."""
    if not found:
        return {}
    numbers = {topic.id: {*topic.numbers} for topic in found}
    ids = ", ".join(str(topic.id) for topic in found)
    for row in session.rows(SEEN.format(topics=ids)):
        numbers[row["topic_id"]].add(row["partition"])
    return {topic: sorted(found) for topic, found in numbers.items()}


def days(session: Any) -> list[Day]:
    """Return the days of the log, in order."""
    return [Day(row["day"], row["last_id"], row["bytes"]) for row in session.rows(DAYS)]


def first_day(found: Sequence[Day], position: int) -> datetime | None:
    """
    Return when the first day begins that can have an id above *position*.

    By the highest id that a closed day can have, and never by the time of a message.
    None: any day can.
    """
    for place, day in enumerate(found):
        if day.last_id is None or day.last_id > position:
            return midnight(day.day) if place else None
    return midnight(found[-1].day) if found else None


def midnight(day: date) -> datetime:
    """Return when a day begins in UTC."""
    return datetime.combine(day, time(), UTC)


def since(start: datetime | None) -> str:
    """Return the condition that leaves out earlier days."""
    return "true" if start is None else f"m.published_at >= {moment(start)}"
