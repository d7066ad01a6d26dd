"""
Offsets: how far a stream is, as its checkpoint keeps it.

They have what a checkpoint must be held against: the installation, which a dump of the
database carries along, the topics' ids, and for each topic a message that the log had
at that moment. Equal states are equal texts: Spark compares them as such.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

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


VERSION = 1


@dataclass(frozen=True, slots=True)
class Mark:
    """A message that the log had, by its id and its time."""

    id: int
    # In UTC, to the microsecond.
    at: str


@dataclass(frozen=True, slots=True)
class TopicOffset:
    """How far one topic is read."""

    id: int
    # Up to which id a partition is read that has no position: no message of it was
    # seen yet.
    read_to: int
    positions: Mapping[int, int] = field(default_factory=dict)
    # None: none was seen yet.
    mark: Mark | None = None

    def position(self, partition: int) -> int:
        """Return up to which id *partition* is read."""
        return self.positions.get(partition, self.read_to)

    def raised(self, position: int) -> TopicOffset:
        """Return it with no position below *position*."""
        if self.lowest >= position:
            return self
        return replace(
            self,
            read_to=max(self.read_to, position),
            positions={
                number: max(at, position) for number, at in self.positions.items()
            },
        )

    @property
    def lowest(self) -> int:
        """The lowest position of all."""
        return min([self.read_to, *self.positions.values()])

    @property
    def highest(self) -> int:
        """The highest position of all."""
        return max([self.read_to, *self.positions.values()])


@dataclass(frozen=True, slots=True)
class Offset:
    """How far a stream is."""

    installation: str
    topics: Mapping[str, TopicOffset]

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Offset:
        """
        Read what dump() has made.

        Raises:
            SparkError: Another version of this package has made it.
        """
        if given.get("version") != VERSION:
            raise SparkError(
                f"The checkpoint has offsets of version {given.get('version')!r}, and "
                f"this django_pgqueue reads version {VERSION}: go on with the one that "
                f"has made it, or begin a new checkpoint."
            )
        return cls(
            given["installation"],
            {
                name: TopicOffset(
                    said["id"],
                    said["read_to"],
                    {int(number): at for number, at in said["partitions"].items()},
                    Mark(**said["mark"]) if said.get("mark") else None,
                )
                for name, said in given["topics"].items()
            },
        )

    def dump(self) -> dict[str, Any]:
        """Return it as a dict for JSON, always in the same order."""
        return {
            "version": VERSION,
            "installation": self.installation,
            "topics": {
                name: {
                    "id": topic.id,
                    "read_to": topic.read_to,
                    "partitions": {
                        str(number): topic.positions[number]
                        for number in sorted(topic.positions)
                    },
                    **({"mark": asdict(topic.mark)} if topic.mark else {}),
                }
                for name, topic in sorted(self.topics.items())
            },
        }
