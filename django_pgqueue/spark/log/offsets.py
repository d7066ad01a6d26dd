"""
Offsets: how far a stream is, as its checkpoint keeps it.

They have what a checkpoint must be held against: the installation, which a dump of the
database carries along, the topics' ids, and for each topic a message that the log had
at that moment. Equal states are equal texts: Spark compares them as such.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from django_pgqueue.exceptions import (
    MessagesLost,
    SparkError,
    SparkOptionError,
    did_you_mean,
)
from django_pgqueue.log import seek
from django_pgqueue.postgres.cursor import Cursor, one_row
from django_pgqueue.spark import slices
from django_pgqueue.spark.connect import Session
from django_pgqueue.spark.option_table import moment

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


# Starting ---------------------------------------------------------------------------
#     earliest | latest | 2026-11-22T09:00:00+00:00 | {"orders": 1200}
#     {"orders": {"0": 1200, "1": 1180}}
# A position is an id: a read begins after it, and ends with it.

EARLIEST, LATEST = "earliest", "latest"

POSITION_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Place:
    """One end of a read: EARLIEST, LATEST, a time, or positions."""

    word: str | None = None
    time: datetime | None = None
    # By topic: of all its partitions, or by partition.
    positions: Mapping[str, int | Mapping[int, int]] | None = None

    def position(self, topic: str, partition: int, otherwise: int) -> int:
        """Return the position that was named, or *otherwise* where none was."""
        named = (self.positions or {}).get(topic, otherwise)
        return named if isinstance(named, int) else named.get(partition, otherwise)


def parse_place(option: str, text: str) -> Place:
    """
    Read the option *option*.

    Raises:
        SparkOptionError: It says no place.
    """
    if text in (EARLIEST, LATEST):
        return Place(word=text)
    if text.lstrip().startswith("{"):
        return Place(positions=_positions(option, text))
    try:
        return Place(time=moment(option, text))
    except SparkOptionError:
        raise SparkOptionError(
            f"The option {option} is {text[:80]!r}; it must be {EARLIEST}, {LATEST}, a "
            f"time with its offset such as 2026-11-22T09:00:00+00:00, or positions "
            f'such as {{"orders": 1200}} or {{"orders": {{"0": 1200, "1": 1180}}}}.'
        ) from None


def check_topics(option: str, place: Place, names: Sequence[str] | None) -> None:
    """Raise SparkOptionError for positions of topics that are not read."""
    for name in place.positions or {}:
        if names is not None and name not in names:
            raise SparkOptionError(
                f"The option {option} has a position of {name!r}, which the option "
                f"topic does not name; it names {', '.join(names)}."
            )


def begin_positions(
    cursor: Cursor,
    place: Place,
    topic: Topic,
    partitions: Sequence[int],
    horizon: int,
) -> dict[int, int]:
    """
    Return after which id a read of each of some partitions begins.

    The topic's *horizon* was fetched before this is called.
    """
    if place.word == LATEST:
        return dict.fromkeys(partitions, horizon)
    if place.time is not None:
        try:
            low = seek.before(cursor, place.time, topic.removed_to, horizon)
        except MessagesLost:
            low = topic.removed_to
        return seek.firsts(
            cursor, topic.id, partitions, place.time, low=low, bound=horizon
        )
    # What is not named begins at the earliest.
    return {
        number: place.position(topic.name, number, topic.removed_to)
        for number in partitions
    }


def end_position(place: Place, topic: Topic, partition: int, horizon: int) -> int:
    """Return the last id that a read of *partition* may have."""
    if place.word == EARLIEST:
        return topic.removed_to
    return min(place.position(topic.name, partition, horizon), horizon)


def _positions(option: str, text: str) -> dict[str, int | Mapping[int, int]]:
    wrong = SparkOptionError(
        f"The option {option} is {text[:80]!r}; positions are whole numbers from 0 by "
        f'topic, or by topic and partition: {{"orders": 1200}}, '
        f'{{"orders": {{"0": 1200, "1": 1180}}}}.'
    )
    try:
        given = json.loads(text)
    except ValueError:
        raise wrong from None
    positions: dict[str, int | Mapping[int, int]] = {}
    for topic, said in given.items():
        if isinstance(said, dict):
            if not all(key.isdecimal() and _is_position(said[key]) for key in said):
                raise wrong
            positions[topic] = {int(key): value for key, value in said.items()}
        elif _is_position(said):
            positions[topic] = said
        else:
            raise wrong
    return positions


def _is_position(value: object) -> bool:
    return type(value) is int and 0 <= value <= POSITION_MAX


# Check ------------------------------------------------------------------------------
#     another database      the installation's id differs
#     an older dump         ids below the offset are still to be drawn, or were drawn
#                           again: the message that the offset names is not in the log
#     another topic         the name is that of a topic made anew
#     retention             has removed messages that were not read
# The last one may be allowed, by onDataLoss=continue; the others never are: the offset
# then says nothing about this database.

FAIL, CONTINUE = "fail", "continue"
ON_DATA_LOSS = (FAIL, CONTINUE)

# Locks: ACCESS SHARE. One look at the primary key of one day for each topic.
MARKED = """
SELECT asked.topic_id::int AS topic_id,
       EXISTS (SELECT FROM pgqueue_message m
                WHERE m.id = asked.id AND m.published_at = asked.at
                  AND m.topic_id = asked.topic_id)
       OR asked.id <= (SELECT t.removed_to FROM pgqueue_topic t
                        WHERE t.id = asked.topic_id) AS is_there
  FROM (VALUES {marks}) AS asked (topic_id, id, at)
"""

# Locks: ACCESS SHARE on receipts of what was erased: the log had it. Asked for a mark
# that is not there, so that a role which may not read them needs no more than before.
ERASED = """
SELECT EXISTS (
       SELECT FROM pgqueue_erasure e JOIN pgqueue_topic t ON t.id = {topic_id}
        WHERE {id} >= (e.messages #>> ARRAY[t.name, 'first_id'])::bigint
          AND {id} <= (e.messages #>> ARRAY[t.name, 'last_id'])::bigint) AS is_erased
"""

# Locks: ACCESS SHARE, in a task that has read what it was to read.
REMOVED = """
SELECT id, name::text AS name, removed_to FROM pgqueue_topic WHERE id IN ({topics})
"""

ANEW = (
    "begin a new checkpoint, with the option starting where it is to begin; or go back "
    "to the database that the checkpoint is of"
)

logger = logging.getLogger("django_pgqueue.spark")


def marked(session: Session, offset: Offset) -> dict[int, bool]:
    """Return whether the log has, or had, each topic's mark, for those with one."""
    marks = [
        f"({topic.id}, {topic.mark.id}::bigint, "
        f"{slices.moment(datetime.fromisoformat(topic.mark.at))})"
        for topic in offset.topics.values()
        if topic.mark is not None
    ]
    if not marks:
        return {}
    rows = session.rows(MARKED.format(marks=", ".join(marks)))
    found = {row["topic_id"]: row["is_there"] for row in rows}
    for topic in offset.topics.values():
        if topic.mark is not None and not found[topic.id]:
            look = ERASED.format(topic_id=topic.id, id=topic.mark.id)
            found[topic.id] = session.rows(look)[0]["is_erased"]
    return found


def check_installation(offset: Offset, installation: str) -> None:
    """Raise SparkError if *offset* is of another database."""
    if offset.installation != installation:
        raise SparkError(
            f"The checkpoint is of the installation {offset.installation}, and this "
            f"database is {installation}: its ids say nothing here. To go on, {ANEW}."
        )


def check_log(
    offset: Offset,
    topics: Mapping[str, Topic],
    highest: int,
    marks: Mapping[int, bool],
) -> None:
    """
    Raise SparkError unless the log is the one that *offset* was taken of.

    Args:
        topics: Those of the database, read after *marks*.
        highest: The highest id that was drawn.
        marks: What marked() has found.
    """
    for name, read in offset.topics.items():
        topic = topics.get(name)
        if topic is None or topic.id != read.id:
            now = (
                "there is none" if topic is None else f"the one there is has {topic.id}"
            )
            raise SparkError(
                f"The checkpoint is of a topic {name!r} with the id {read.id}; {now}. "
                f"To go on, {ANEW}."
            )
        if read.highest > highest:
            raise SparkError(
                f"The checkpoint has read {name!r} up to id {read.highest:,}, and the "
                f"highest id of this database is {highest:,}: an older dump was "
                f"restored. What is published now gets ids that the stream has passed. "
                f"To go on, {ANEW}."
            )
        mark = read.mark
        if (
            mark is not None
            and not marks.get(topic.id, True)
            and mark.id > topic.removed_to
        ):
            raise SparkError(
                f"The checkpoint has seen message {mark.id:,} of {name!r}, of "
                f"{mark.at}, which is not in the log, and was neither erased nor "
                f"removed by retention: an older dump was restored, and the ids were "
                f"drawn again. To go on, {ANEW}."
            )


def check_kept(name: str, position: int, removed_to: int, on_data_loss: str) -> None:
    """
    Raise MessagesLost if retention has removed messages after *position*.

    With onDataLoss=continue, only say so.
    """
    if removed_to <= position:
        return
    told = (
        f"Retention has removed messages of {name!r} up to id {removed_to:,}, and the "
        f"stream has read up to {position:,}: those between are lost to it."
    )
    if on_data_loss == CONTINUE:
        logger.warning("messages lost topic=%s %s", name, told)
        return
    raise MessagesLost(
        f"{told} To go on with what there still is, set the option "
        f"onDataLoss={CONTINUE}; to keep messages longer, set the topic's retain."
    )


def check_still_kept(
    session: Session, positions: Mapping[int, int], on_data_loss: str
) -> None:
    """
    Raise MessagesLost if retention came between while a task was reading.

    Retention says up to where it removes before it removes anything. So a task that
    asks after it has read knows whether it has read all.

    The *positions* are by topic: after which id the task has read.
    """
    ids = ", ".join(map(str, positions))
    for row in session.rows(REMOVED.format(topics=ids)):
        check_kept(row["name"], positions[row["id"]], row["removed_to"], on_data_loss)
