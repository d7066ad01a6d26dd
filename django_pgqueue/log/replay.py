"""
Replay: messages of a log once more, as jobs of somebody who exists.

As a back-fill, but of a range that somebody has asked for: the jobs are made a chunk at
a time, in the transaction that notes how far it is (queues/bulk_acts.py). So each
message is replayed once, whoever dies in between. Nothing is read that could still be
held back: a range ends at the horizon of the moment in which it was asked for.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from django_pgqueue.exceptions import MessagesLost, TopicError, shown
from django_pgqueue.log import backfill, seek
from django_pgqueue.log.groups import TopicRow
from django_pgqueue.log.horizon import horizons
from django_pgqueue.log.start import EARLIEST, LATEST, Start
from django_pgqueue.postgres.clock import server_now
from django_pgqueue.postgres.cursor import Cursor, column, one_row, record

# Of one transaction: jobs that it makes, and messages that it looks at.
CHUNK_JOBS, CHUNK_MESSAGES = 10_000, 10_000

# Counting stops here, or after so long.
COUNT_MAX, COUNT_SECONDS_MAX = 100_000, 5.0

# In the headers of each job: by which act it was made.
HEADER = "pgqueue.replay"

# And of a message of a pull queue, which has a copy: of which one.
MESSAGE_HEADER = "pgqueue.message"

Kind = Literal["subscription", "group", "queue"]

# Who gets the messages, as a row that is read as a subscription. Locks: none.
SUBSCRIPTION = """
    SELECT s.topic, s.pattern, s.payload_filter, s.queue, s.task, s.headers,
           s.priority, s.max_attempts, s.lane_by, s.lane_capacity, s.lane_spacing,
           s.lane_burst, s.lane_policy
      FROM pgqueue_subscription s
     WHERE s.queue = %(queue)s AND s.pattern = %(name)s AND s.task = %(task)s
       AND s.disabled_at IS NULL
"""
# A group's task takes a list, and gets one of one message, as a dead letter of it does.
GROUP = """
    SELECT g.topic, g.topic AS pattern, g.payload_filter, g.queue, g.task,
           '{{}}'::jsonb AS headers, 0 AS priority, g.max_attempts,
           NULL::text[] AS lane_by, NULL::integer AS lane_capacity,
           NULL::float8 AS lane_spacing, NULL::integer AS lane_burst,
           NULL::text AS lane_policy
      FROM pgqueue_consumer_group g
     WHERE g.name = %(name)s AND g.task <> ''
       AND g.topic_id = (SELECT t.id FROM pgqueue_topic t WHERE t.name = %(topic)s)
"""

# Its receivers get what the message has, and nothing of the log.
QUEUE = """
    SELECT %(topic)s::text AS topic, %(topic)s::text AS pattern,
           NULL::jsonb AS payload_filter, q.name AS queue, %(task)s::text AS task,
           '{{}}'::jsonb AS headers, 0 AS priority,
           coalesce(q.max_receives, 5) AS max_attempts,
           NULL::text[] AS lane_by, NULL::integer AS lane_capacity,
           NULL::float8 AS lane_spacing, NULL::integer AS lane_burst,
           NULL::text AS lane_policy
      FROM pgqueue_queue q WHERE q.name = %(name)s AND q.kind = 'pull'
"""

# Locks: none.
PULL_QUEUES = "SELECT name FROM pgqueue_queue WHERE kind = 'pull' ORDER BY name"

# Of the topic, of the range, and with what is asked for.
CONDITION = """m.topic_id + 0 = %(topic_id)s
       AND m.published_at < %(until)s::timestamptz
       AND (%(where)s::jsonb IS NULL OR m.payload @> %(where)s::jsonb)"""

# Locks: none but of the rows that are new. No row: there is nobody to get them.
REPLAYS = """
WITH mine AS MATERIALIZED ({mine}),
found AS MATERIALIZED ({found}),
job AS ({jobs}),
reached AS ({reached})
SELECT reached.jobs, reached.id, reached.in_lanes, reached.in_turn
  FROM reached WHERE EXISTS (SELECT FROM mine)
"""
# Of messages that stand in a table of the caller's, as a stage of Spark: all of its
# rows that count, in the order of their ids. So many a second are due, from now on.
GIVEN = f"""
    SELECT m.id, m.published_at, m.headers, {{payload}} AS payload,
           {backfill.LANE} AS lane,
           statement_timestamp() + (row_number() OVER (ORDER BY m.id) - 1)
               * (interval '1 second' / %(rate)s::float8) AS due_at
      FROM mine s, {{{{rows}}}} m
     WHERE {backfill.WANTED}
"""
# Locks: as REPLAYS.
REPLAYS_GIVEN = """
WITH mine AS MATERIALIZED ({mine}),
found AS MATERIALIZED ({found}),
job AS ({jobs})
SELECT count(*), count(lane), count(lane) FILTER (WHERE lane_policy = 'fair'),
       EXISTS (SELECT FROM mine)
  FROM job
"""
# How many of some messages are meant. Locks: none.
COUNTS = """
WITH mine AS MATERIALIZED ({mine}),
found AS MATERIALIZED ({found})
SELECT count(*), min(published_at), max(published_at) FROM found
"""


@dataclass(frozen=True, slots=True)
class Into:
    """How a kind of receivers gets messages."""

    # Who that is, as a row that is read as a subscription.
    mine: str
    # What a job gets, where {message} is what it is given of the message.
    args: str
    # What its headers have besides.
    headers: str = ""
    # A pull queue's has a copy of the payload, and refers to nothing.
    is_copy: bool = False

    @property
    def replays(self) -> str:
        """The statement for messages of a log."""
        payload = "m.payload" if self.is_copy else "NULL"
        message = "found.payload" if self.is_copy else backfill.MESSAGE
        found = backfill.FOUND.format(condition=CONDITION, payload=payload)
        return REPLAYS.format(
            mine=self.mine.format(),
            found=found,
            jobs=self._jobs(message),
            reached=backfill.REACHED,
        )

    @property
    def replays_given(self) -> str:
        """The statement for messages of a table, which it has a place {rows} for."""
        whole = backfill.WHOLE.format(topic="%(topic)s::text")
        payload = "m.payload" if self.is_copy else whole
        message = (
            "found.payload"
            if self.is_copy
            else "jsonb_build_object('__pgqueue__', 'message', 'value', found.payload)"
        )
        return REPLAYS_GIVEN.format(
            mine=self.mine,
            found=GIVEN.format(payload=payload),
            jobs=self._jobs(message).replace("{}", "{{}}"),
        )

    @property
    def counts(self) -> str:
        """The statement that counts messages of a log."""
        found = backfill.FOUND.format(condition=CONDITION, payload="NULL")
        return COUNTS.format(mine=self.mine.format(), found=found)

    def _jobs(self, message: str) -> str:
        return backfill.JOBS.format(
            args=self.args.format(message=message),
            message_id="NULL" if self.is_copy else "found.id",
            headers=f"s.headers || {self.headers}%(headers)s::jsonb",
        )


OF_SUBSCRIPTION = Into(SUBSCRIPTION, "jsonb_build_array({message})")
OF_GROUP = Into(GROUP, "jsonb_build_array(jsonb_build_array({message}))")
OF_QUEUE = Into(
    QUEUE,
    "jsonb_build_array({message})",
    headers=f"jsonb_build_object('{MESSAGE_HEADER}', found.id) || ",
    is_copy=True,
)

INTO_SUBSCRIPTION, COUNT_SUBSCRIPTION = OF_SUBSCRIPTION.replays, OF_SUBSCRIPTION.counts
INTO_GROUP, COUNT_GROUP = OF_GROUP.replays, OF_GROUP.counts
INTO_QUEUE, COUNT_QUEUE = OF_QUEUE.replays, OF_QUEUE.counts

# By who gets them: how messages are replayed, and how they are counted.
STATEMENTS: Mapping[Kind, tuple[str, str]] = {
    "subscription": (INTO_SUBSCRIPTION, COUNT_SUBSCRIPTION),
    "group": (INTO_GROUP, COUNT_GROUP),
    "queue": (INTO_QUEUE, COUNT_QUEUE),
}
# And how messages of a table are.
GIVEN_TO: Mapping[Kind, Into] = {
    "subscription": OF_SUBSCRIPTION,
    "group": OF_GROUP,
    "queue": OF_QUEUE,
}


@dataclass(frozen=True, slots=True)
class Range:
    """What is replayed, and into what."""

    topic: str
    kind: Kind
    queue: str
    # The pattern of a subscription, or the name of a group or a queue.
    name: str
    task: str
    # Of times: at or after, and before; ids are said besides.
    since: datetime | None = None
    until: datetime | None = None
    where: Mapping[str, Any] | None = None

    @property
    def params(self) -> dict[str, Any]:
        """What the statements take."""
        return {
            "topic": self.topic,
            "queue": self.queue,
            "name": self.name,
            "task": self.task,
            "since": self.since or "-infinity",
            "until": self.until or "infinity",
            "where": None if self.where is None else json.dumps(self.where),
        }


class Replayed(NamedTuple):
    """What one chunk has done."""

    jobs: int
    # Up to which id all was looked at.
    position: int
    in_lanes: int
    in_turn: int


def replay(
    cursor: Cursor,
    of: Range,
    topic: TopicRow,
    *,
    act: int,
    position: int,
    top: int,
    jobs: int,
) -> Replayed | None:
    """
    Make the jobs of the next messages; None: the receiver no longer exists.

    Args:
        cursor: In READ COMMITTED; the caller has a transaction open, and stores the
            position in it. With Plans.IN_ORDER of postgres/limits.py.
        of: What is replayed.
        topic: Its row, which the transaction has a share lock on: retention writes
            messages into the jobs that refer to them before it removes them, and must
            not overlook those that are made here.
        act: The number that the jobs' headers say.
        position: The id up to which it has come.
        top: The highest id that is meant.
        jobs: How many at most.
    """
    params = {
        **of.params,
        "topic_id": topic.id,
        "position": max(position, topic.removed_to),
        "bound": top,
        "jobs": jobs,
        "messages": CHUNK_MESSAGES,
        "headers": json.dumps({HEADER: act}),
    }
    to = _edge(cursor, params)
    replays, _ = STATEMENTS[of.kind]
    return record(Replayed, cursor, replays, **params, last=to, to=to)


def pull_queues(cursor: Cursor) -> list[str]:
    """Return the names of queues whose messages are received, and not run."""
    return column(cursor, PULL_QUEUES)


def _edge(cursor: Cursor, params: dict[str, Any]) -> int:
    """Return up to which id the next messages go."""
    cursor.execute(backfill.EDGE, params)
    seen, last = one_row(cursor)
    return int(
        last if seen == CHUNK_MESSAGES else max(params["bound"], params["position"])
    )


# Plan ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """
    What a replay would do.

    Attributes:
        into: Who gets the messages, as to= can be said.
        messages: How many were counted.
        is_more: Whether there may be more.
        first: When the first of those that were counted was published.
        last: When the last was.
    """

    range: Range
    topic: TopicRow
    into: str
    # The id up to which it has come before it begins, and the highest that is meant.
    position: int
    top: int
    at: datetime
    messages: int = 0
    is_more: bool = True
    first: datetime | None = None
    last: datetime | None = None

    @property
    def said(self) -> dict[str, Any]:
        """What its bulk act keeps, for whoever does it."""
        said = {
            "topic": self.range.topic,
            "into": self.into,
            "after": self.position,
            "since": self.range.since and self.range.since.isoformat(),
            "until": self.range.until and self.range.until.isoformat(),
            "where": self.range.where,
        }
        return {name: value for name, value in said.items() if value is not None}


def look(
    cursor: Cursor,
    topic: str,
    row: TopicRow,
    receiver: tuple[str, dict[str, Any]],
    *,
    since: int | Start,
    until: int | Start | None,
    where: str | None,
) -> Plan:
    """
    Return what a replay means, of which nothing is counted yet.

    Args:
        cursor: On the primary.
        topic: Whose log.
        row: As groups.topic_of() returned it.
        receiver: As receivers.find() returned it.
        since: As place() returned it.
        until: Likewise; None: what is published by now.
        where: JSON text of what a payload must contain; None: any.

    Raises:
        MessagesLost: It begins before what retention has left.
        TopicError: An id lies beyond what can be read.
    """
    into, of = receiver
    at = server_now(cursor)
    bound = horizons(cursor).of(row.id)
    position, since_at = _begin(cursor, since, row, bound, at)
    top, until_at = _end(cursor, until, row, bound, at)
    meant = Range(
        **of,
        topic=topic,
        since=since_at,
        until=until_at,
        where=None if where is None else json.loads(where),
    )
    return Plan(range=meant, topic=row, into=into, position=position, top=top, at=at)


def counted(cursor: Cursor, plan: Plan) -> Plan:
    """
    Return *plan* with its messages counted, of COUNT_MAX and some that are looked at.

    Args:
        cursor: With Plans.IN_ORDER of postgres/limits.py.
        plan: As look() returned it.
    """
    ends_at = time.monotonic() + COUNT_SECONDS_MAX
    messages, position = 0, plan.position
    _, counts = STATEMENTS[plan.range.kind]
    params = {
        **plan.range.params,
        "topic_id": plan.topic.id,
        "bound": plan.top,
        "jobs": CHUNK_MESSAGES,
        "messages": CHUNK_MESSAGES,
    }
    times: list[datetime] = []
    while position < plan.top:
        params["position"] = position
        position = params["last"] = _edge(cursor, params)
        cursor.execute(counts, params)
        found, *moments = one_row(cursor)
        messages += found
        times += [each for each in moments if each is not None]
        if messages > COUNT_MAX or time.monotonic() >= ends_at:
            break
    return replace(
        plan,
        messages=messages,
        is_more=position < plan.top,
        first=min(times, default=None),
        last=max(times, default=None),
    )


def place(name: str, value: object) -> int | Start:
    """
    Return where a range begins or ends, checked.

    Args:
        name: Of the argument, for the error.
        value: An id, "earliest", a moment that is over, or a duration until now.

    Raises:
        TopicError: It is none of these.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    if value != LATEST and not isinstance(value, int):
        try:
            return Start.parse(value)
        except TopicError:
            pass
    raise TopicError(
        f"{name}={shown(value)}: write the id of a message, 'earliest', a datetime "
        f"that is over, or a duration such as '2 days ago'."
    )


def _begin(
    cursor: Cursor, said: int | Start, row: TopicRow, bound: int, at: datetime
) -> tuple[int, datetime | None]:
    """Return the id after which a range begins, and a time; raise as look()."""
    if isinstance(said, int):
        seek.check_position(said - 1, row.removed_to, bound)
        return said - 1, None
    if said.text == EARLIEST:
        return row.removed_to, None
    moment = _moment_of(said, at)
    return seek.before(cursor, moment, row.removed_to, bound), moment


def _end(
    cursor: Cursor, said: int | Start | None, row: TopicRow, bound: int, at: datetime
) -> tuple[int, datetime | None]:
    """Return the id with which a range ends, and a time before which it does."""
    if said is None:
        return bound, None
    if isinstance(said, int):
        return min(said, bound), None
    if said.text == EARLIEST:
        return row.removed_to, None
    moment = _moment_of(said, at)
    # Ids follow times but for some seconds: so many are looked at besides.
    later = moment + 2 * timedelta(seconds=seek.DISORDER_SECONDS)
    try:
        return seek.before(cursor, later, row.removed_to, bound), moment
    except MessagesLost:
        return row.removed_to, moment


def _moment_of(said: Start, at: datetime) -> datetime:
    return datetime.fromisoformat(said.text) if said.ago is None else at - said.ago
