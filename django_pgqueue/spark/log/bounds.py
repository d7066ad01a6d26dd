"""
Bounds: topics, horizons and days, which a read of the log must know before it begins.

The order matters. The horizon comes first, in a statement of its own: a message up to
it is visible to every later statement, or was rolled back. See log/horizon.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django_pgqueue.exceptions import SparkError, SparkOptionError, did_you_mean
from django_pgqueue.log.closed_days import ALL_DAYS, closed_days
from django_pgqueue.postgres.cursor import Cursor, one_row
from django_pgqueue.spark.log.walk import Range

# Locks: none. Which database this is, and whether it knows who publishes.
WHO = "SELECT pg_is_in_recovery(), pgqueue_installation()::text"

# Locks: ACCESS SHARE.
TOPICS = """
SELECT id, name::text, first_partition::int, partitions::int, removed_to
  FROM pgqueue_topic ORDER BY name
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


def check_primary(cursor: Cursor) -> str:
    """
    Return the installation that *cursor* is connected to.

    Raises:
        SparkError: It is a replica, which does not know who publishes.
    """
    cursor.execute(WHO)
    is_replica, installation = one_row(cursor)
    if is_replica:
        raise SparkError(
            "The log of topics is read from the primary: a replica does not see who "
            "publishes at the moment, so that a read of it would pass over messages. "
            "Let the DSN (PGQUEUE_DSN, dsnEnv or dsnFile) name the primary."
        )
    return str(installation)


def topics(cursor: Cursor, names: Sequence[str] | None) -> dict[str, Topic]:
    """
    Return the topics *names*, or all that there are, by their names.

    Raises:
        SparkOptionError: There is no such topic.
    """
    cursor.execute(TOPICS)
    known = {topic.name: topic for topic in (Topic(*row) for row in cursor.fetchall())}
    for name in names or ():
        if name not in known:
            raise SparkOptionError(
                f"There is no topic {name!r}.{did_you_mean(name, list(known))} "
                f"A topic is made by migrating code that declares it, or by its first "
                f"message."
            )
    return known if names is None else {name: known[name] for name in names}


def first_day(cursor: Cursor, ranges: Sequence[Range]) -> datetime | None:
    """
    Return when the first day begins that can have a message of *ranges*.

    By the highest id that a closed day can have, and never by the time of a message.
    None: any day can.
    """
    lowest = min((each.after for each in ranges), default=0)
    since = closed_days(cursor).since(lowest)
    return None if since == ALL_DAYS else datetime.fromisoformat(since)
