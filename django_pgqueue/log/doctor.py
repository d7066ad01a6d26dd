"""
Doctor: what is wrong with the log and its groups that nobody would notice otherwise.

Gauges of the log: each is a number that an alert can be set on.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import NamedTuple

from django_pgqueue.log import browse, days, sizes
from django_pgqueue.log.closed_days import closed_days
from django_pgqueue.log.days import LOG
from django_pgqueue.log.in_partition import ALL_PARTS, RISING, within
from django_pgqueue.log.lag import Holder, holders
from django_pgqueue.postgres.cursor import Cursor, one_row
from django_pgqueue.postgres.day_tables import today

# A day that is over is closed by the leader, two hours later.
CLOSED_LATE = timedelta(hours=3)

# Locks: none; so have all of these. Groups whose oldest unread message is so old that
# little of its retention is left, or whose topic has a bound of bytes that will soon be
# reached: a look at the index for each position. Those that retention has halted
# already have nothing more to lose by waiting.
BEHIND = f"""
SELECT g.topic, g.name,
       extract(epoch FROM clock_timestamp() - min(oldest.published_at))::float8,
       extract(epoch FROM keep.log)::float8,
       bool_or(oldest.published_at < going.first AT TIME ZONE 'UTC')
  FROM pgqueue_consumer_group g
  JOIN pgqueue_topic t ON t.id = g.topic_id
 CROSS JOIN LATERAL (SELECT coalesce(t.retain, %(default)s::interval) AS log) keep
  LEFT JOIN unnest(%(topics)s::int[], %(firsts)s::date[]) AS going(topic_id, first)
       ON going.topic_id = t.id
  JOIN pgqueue_position p ON p.group_id = g.id
   AND p.halted_for IS DISTINCT FROM 'retention'
 CROSS JOIN LATERAL (
       SELECT m.published_at FROM pgqueue_message m
        WHERE m.topic_id = g.topic_id
          AND {within("p.partition", after="p.position")}
        {RISING} LIMIT 1) oldest
 WHERE oldest.published_at < clock_timestamp() - keep.log * %(share)s::float8
    OR oldest.published_at < going.first AT TIME ZONE 'UTC'
 GROUP BY g.topic, g.name, keep.log
 ORDER BY 3 DESC
"""

HALTED = """
SELECT g.topic, g.name, p.halted_for, count(*)::integer,
       extract(epoch FROM clock_timestamp() - min(p.halted_at))::float8,
       (array_agg(p.errors -> -1 ->> 'message' ORDER BY p.halted_at))[1]
  FROM pgqueue_consumer_group g JOIN pgqueue_position p ON p.group_id = g.id
 WHERE p.halted_at IS NOT NULL
 GROUP BY g.topic, g.name, p.halted_for
 ORDER BY g.topic, g.name, p.halted_for
"""

# How many partitions a topic has is said when its row is made, and by a repartition.
OTHER_PARTITIONS = """
SELECT name, partitions, (declared ->> 'partitions')::integer FROM pgqueue_topic
 WHERE (declared ->> 'partitions')::integer <> partitions
 ORDER BY name
"""

# Topics with a bound of bytes, and what the leader has measured.
BOUNDED = """
SELECT id, name, retain_bytes, coalesce(log_bytes, 0) FROM pgqueue_topic ORDER BY name
"""

# Topics that wait for the pipeline job ingest: since when what it has not read is old
# enough to go, for how long it waits, and whether some is removed that it has not read.
# A look at the index for each partition. A place that was not written to for all of
# that time is given up, as in retain.py.
UNINGESTED = f"""
SELECT t.name, ingested.read_to IS NOT NULL,
       extract(epoch FROM clock_timestamp() - said.log - oldest.at)::float8,
       extract(epoch FROM said.wait)::float8,
       coalesce(t.removed_to > ingested.read_to, false)
  FROM pgqueue_topic t
 CROSS JOIN LATERAL (
       SELECT coalesce(t.retain, %(default)s::interval) AS log,
              nullif(coalesce(t.wait_for_ingest, %(wait)s::interval), '0') AS wait) said
  LEFT JOIN LATERAL (
       SELECT min(p.read_to) AS read_to FROM pgqueue_ingest_position p
        WHERE p.topic_id = t.id
          AND p.read_at > clock_timestamp() - said.log - said.wait) ingested ON true
 CROSS JOIN LATERAL (
       SELECT min(m.published_at) AS at
         FROM {ALL_PARTS}
        CROSS JOIN LATERAL (
              SELECT m.published_at FROM pgqueue_message m
               WHERE m.topic_id = t.id
                 AND {within("part", after="coalesce(ingested.read_to, 0)")}
               {RISING} LIMIT 1) m) oldest
 WHERE said.wait IS NOT NULL
   AND (t.wait_for_ingest IS NOT NULL OR ingested.read_to IS NOT NULL)
   AND (oldest.at < clock_timestamp() - said.log OR t.removed_to > ingested.read_to)
 ORDER BY t.name
"""

# Runs of ingest that are to go on until they are stopped, of the latest of each
# checkpoint: how each is, and since when it has not told how far it has come. Of ingest
# a thousand runs are kept; positions are a row for each topic and place.
STALLED_INGEST = """
SELECT r.id, r.state, (r.options ->> 'trigger') AS trigger,
       extract(epoch FROM clock_timestamp() - coalesce(p.at, r.started_at))::float8,
       extract(epoch FROM (r.options ->> 'trigger')::interval)::float8
  FROM (SELECT DISTINCT ON (options ->> 'path', options ->> 'checkpoint')
               id, state, options, started_at
          FROM pgqueue_pipeline_run WHERE job = 'ingest'
         ORDER BY options ->> 'path', options ->> 'checkpoint', id DESC) r
 CROSS JOIN LATERAL (
       SELECT max(p.read_at) AS at
         FROM pgqueue_ingest_position p JOIN pgqueue_topic t ON t.id = p.topic_id
        WHERE p.target = rtrim(r.options ->> 'path', '/')
          AND t.name = ANY(string_to_array(
                  replace(r.options ->> 'topic', ' ', ''), ','))) p
 WHERE r.options ->> 'trigger' ~ '^[0-9]+[smh]$' AND r.state <> 'cancelled'
 ORDER BY r.id
"""
# The first that is due, and how many have failed of the first thousand that are tried
# again: by the index of the moments.
SCHEDULED = """
SELECT extract(epoch FROM clock_timestamp() - (
           SELECT due_at FROM pgqueue_scheduled_message
            ORDER BY due_at, id DESC LIMIT 1))::float8,
       count(*) FILTER (WHERE failures > 0), (array_agg(error)
           FILTER (WHERE failures > 0))[1]
  FROM (SELECT failures, error FROM pgqueue_scheduled_message
         ORDER BY due_at, id DESC LIMIT %(limit)s) first
"""
SCHEDULED_ROWS_MAX = 1_000

# Former partitions that are not done with so long after their count was changed: which
# groups still read them, or that somebody may still publish into them.
FORMER = """
SELECT t.name, extract(epoch FROM clock_timestamp() - min(e.ended_at))::float8,
       array_agg(DISTINCT g.name) FILTER (WHERE p.id IS NOT NULL)
  FROM pgqueue_generation e
  JOIN pgqueue_topic t ON t.id = e.topic_id
  LEFT JOIN pgqueue_consumer_group g ON g.topic_id = t.id AND g.is_merging
  LEFT JOIN pgqueue_position p ON p.group_id = g.id
   AND p.partition >= e.first_partition
   AND p.partition < e.first_partition + e.partitions
 WHERE e.ended_at < clock_timestamp() - make_interval(secs => %(seconds)s::float8)
   AND (e.last_id IS NULL OR p.id IS NOT NULL)
 GROUP BY t.name ORDER BY t.name
"""

NAMES = "SELECT id, name FROM pgqueue_topic WHERE id = ANY(%(topics)s::int[])"


class Scheduled(NamedTuple):
    """Messages that are published later."""

    # Since when the first of them is due; below zero: it is not yet. None: none waits.
    late_seconds: float | None
    # How many could not be published, of the next thousand, and why the first of them.
    failed: int
    error: str | None


class Behind(NamedTuple):
    """A group that is about to lose messages."""

    topic: str
    group: str
    # Since its oldest unread message was published, and for how long it is kept; None:
    # as long as there is room.
    seconds: float
    keep_seconds: float | None
    # Whether that goes when a bound of bytes is reached.
    is_large: bool


class Halted(NamedTuple):
    """Positions of a group that nobody reads on from."""

    topic: str
    group: str
    # "error" or "retention".
    halted_for: str
    partitions: int
    # Since the first one was halted.
    seconds: float
    message: str | None


class Former(NamedTuple):
    """A topic with former partitions that are not done with."""

    topic: str
    # Since their count was changed.
    seconds: float
    # Those that still read them; None: none does, but a transaction that does not see
    # the change may still publish into them.
    groups: list[str] | None


class LogDays(NamedTuple):
    """Which days the log has."""

    # How many after today there are tables for.
    ahead: int
    # That have been over for CLOSED_LATE, and are not closed.
    unclosed: list[date]
    # That are closed, and not over.
    early: list[date]


class Full(NamedTuple):
    """What has more bytes than it may, in days that cannot go yet."""

    # None: the log of all topics.
    topic: str | None
    bytes: int
    bytes_max: int


class Bounds(NamedTuple):
    """How near topics are to what they may have."""

    # The first day that each would keep with a share of its bound.
    firsts: dict[int, date]
    full: list[Full]


class StalledIngest(NamedTuple):
    """A run of the pipeline job ingest that is to go on until it is stopped."""

    run: int
    state: str
    trigger: str
    # Since it told how far it has come.
    seconds: float
    trigger_seconds: float


class Uningested(NamedTuple):
    """A topic that the pipeline job ingest should have read further."""

    topic: str
    # Whether it has been read at all, lately.
    is_known: bool
    # For how long its oldest unread message waits; None: nothing does. Less than zero:
    # it is not old enough yet.
    seconds: float | None
    wait_seconds: float
    # Whether messages were removed that were not read.
    is_lost: bool

    @property
    def is_waiting(self) -> bool:
        """Whether messages stay for it that are old enough to go."""
        return self.seconds is not None and self.seconds > 0


class HeldBack(NamedTuple):
    """A transaction that publishes, and holds the readers of a topic back."""

    topic: str
    holder: Holder


def bounds(cursor: Cursor, *, bytes_max: int | None, share: float) -> Bounds:
    """
    Return how near topics are to the bytes that they may have.

    Args:
        cursor: An open cursor.
        bytes_max: What the log of all topics may have; None: any number.
        share: Of each bound, from 0 to 1.
    """
    closed = {day for day, _last_id in closed_days(cursor).closed}
    files = {each.day: each.bytes for each in browse.days(cursor)}
    noted = sizes.noted(cursor)

    def first_of(of_days: Mapping[date, int], most: int | None) -> date | None:
        part = None if most is None else int(most * share)
        return sizes.first_within(of_days, part, closed)

    full = []
    left = sum(size for day, size in files.items() if day not in closed)
    if bytes_max is not None and left > bytes_max:
        full.append(Full(None, left, bytes_max))
    whole, firsts = first_of(files, bytes_max), {}
    cursor.execute(BOUNDED)
    for topic_id, name, most, measured in cursor.fetchall():
        of_days = {day: of.get(topic_id, 0) for day, of in noted.items()}
        left = max(measured - sum(of_days.values()), 0)
        if most is not None and left > most:
            full.append(Full(name, left, most))
        # What is in no closed day counts, and stays.
        own = first_of({**of_days, date.max: left}, most)
        if first := sizes.latest([own, whole]):
            firsts[topic_id] = first
    return Bounds(firsts, full)


def behind(
    cursor: Cursor,
    *,
    default: timedelta | None,
    share: float,
    firsts: Mapping[int, date],
) -> list[Behind]:
    """
    Return the groups whose oldest unread message has outlived a share of its retention.

    Args:
        cursor: In a transaction with Plans.IN_ORDER.
        default: What topics that do not say keep; None: all.
        share: From 0 to 1.
        firsts: Of topics that near a bound of bytes, the first day that is safe.
    """
    params = {
        "default": default,
        "share": share,
        "topics": list(firsts),
        "firsts": list(firsts.values()),
    }
    cursor.execute(BEHIND, params)
    return [Behind(*row) for row in cursor.fetchall()]


def uningested(
    cursor: Cursor, *, default: timedelta | None, wait: timedelta | None
) -> list[Uningested]:
    """
    Return the topics that wait for the pipeline job ingest, or have done so in vain.

    Args:
        cursor: In a transaction with Plans.IN_ORDER.
        default: What topics that do not say keep; None: all.
        wait: For how long they wait then; None: not at all.
    """
    cursor.execute(UNINGESTED, {"default": default, "wait": wait})
    return [Uningested(*row) for row in cursor.fetchall()]


def stalled_ingest(cursor: Cursor) -> list[StalledIngest]:
    """Return the runs of the pipeline job ingest that are to go on."""
    cursor.execute(STALLED_INGEST)
    return [StalledIngest(*row) for row in cursor.fetchall()]


def halted(cursor: Cursor) -> list[Halted]:
    """Return which groups have halted positions, and why."""
    cursor.execute(HALTED)
    return [Halted(*row) for row in cursor.fetchall()]


def other_partitions(cursor: Cursor) -> list[tuple[str, int, int]]:
    """Return topics that have other partitions than code says: (name, has, says)."""
    cursor.execute(OTHER_PARTITIONS)
    return list(cursor.fetchall())


def former(cursor: Cursor, *, seconds: float) -> list[Former]:
    """Return topics whose count was changed so long ago, and is not over with."""
    cursor.execute(FORMER, {"seconds": seconds})
    return [Former(*row) for row in cursor.fetchall()]


def log_days(cursor: Cursor) -> LogDays:
    """Return how many days ahead the log has, and which are closed late."""
    attached, known = LOG.attached(cursor), dict(closed_days(cursor).closed)
    now = today(cursor)
    over = days.first_open(cursor, CLOSED_LATE)
    return LogDays(
        sum(1 for day in attached if day > now),
        [day for day in attached if day < over and day not in known],
        days.closed_early(cursor),
    )


def held_back(cursor: Cursor, *, seconds: float) -> list[HeldBack]:
    """Return who has held readers back for longer than that, the longest first."""
    found = [each for each in holders(cursor) if each.is_longer(seconds)]
    cursor.execute(NAMES, {"topics": [each.topic_id for each in found]})
    names = dict(cursor.fetchall())
    return [HeldBack(names.get(each.topic_id, "?"), each) for each in found]


def scheduled(cursor: Cursor) -> Scheduled:
    """Return how messages that are published later get on."""
    cursor.execute(SCHEDULED, {"limit": SCHEDULED_ROWS_MAX})
    return Scheduled(*one_row(cursor))
