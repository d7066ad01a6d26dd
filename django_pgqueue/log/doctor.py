"""Doctor: the statements by which findings look at the log, its groups and topics."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import NamedTuple

from django_pgqueue.log import browse, sizes
from django_pgqueue.log.closed_days import closed_days
from django_pgqueue.log.in_partition import ALL_PARTS, RISING, within
from django_pgqueue.postgres.cursor import Cursor, records

# Locks: none; so have all of these. Groups whose oldest unread message is so old that
# little of its retention is left, or whose topic has a bound of bytes that will soon be
# reached: a look at the index for each position. Those that retention has halted
# already have nothing more to lose by waiting.
BEHIND = f"""
SELECT g.topic, g.name,
       extract(epoch FROM clock_timestamp() - min(oldest.published_at))::float8
           AS seconds,
       extract(epoch FROM keep.log)::float8 AS keep_seconds,
       bool_or(oldest.published_at < going.first AT TIME ZONE 'UTC') AS is_large
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
SELECT g.topic, g.name, p.halted_for, count(*)::integer AS partitions,
       extract(epoch FROM clock_timestamp() - min(p.halted_at))::float8 AS seconds,
       (array_agg(p.errors -> -1 ->> 'message' ORDER BY p.halted_at))[1] AS message
  FROM pgqueue_consumer_group g JOIN pgqueue_position p ON p.group_id = g.id
 WHERE p.halted_at IS NOT NULL
 GROUP BY g.topic, g.name, p.halted_for
 ORDER BY g.topic, g.name, p.halted_for
"""

# How many partitions a topic has is said when its row is made, and by a repartition.
OTHER_PARTITIONS = """
SELECT name, partitions, (declared ->> 'partitions')::integer AS declared
  FROM pgqueue_topic
 WHERE (declared ->> 'partitions')::integer <> partitions
 ORDER BY name
"""

# Topics with a bound of bytes, and what the leader has measured.
BOUNDED = """
SELECT id, name, retain_bytes, coalesce(log_bytes, 0) AS log_bytes
  FROM pgqueue_topic ORDER BY name
"""

# Topics that wait for the pipeline job ingest: since when what it has not read is old
# enough to go, for how long it waits, and whether some is removed that it has not read.
# A look at the index for each partition. A place that was not written to for all of
# that time is given up, as in retain.py.
UNINGESTED = f"""
SELECT t.name,
       extract(epoch FROM clock_timestamp() - said.log - oldest.at)::float8 AS seconds,
       extract(epoch FROM said.wait)::float8 AS wait_seconds,
       coalesce(t.removed_to > ingested.read_to, false) AS is_lost
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
       extract(epoch FROM clock_timestamp() - coalesce(p.at, r.started_at))::float8
           AS seconds,
       extract(epoch FROM (r.options ->> 'trigger')::interval)::float8
           AS trigger_seconds
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
# Former partitions that are not done with so long after their count was changed: which
# groups still read them, or that somebody may still publish into them.
FORMER = """
SELECT t.name,
       extract(epoch FROM clock_timestamp() - min(e.ended_at))::float8 AS seconds,
       array_agg(DISTINCT g.name) FILTER (WHERE p.id IS NOT NULL) AS groups
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


class Full(NamedTuple):
    """What has more bytes than it may, in days that cannot go yet."""

    # None: the log of all topics.
    topic: str | None
    bytes: int
    bytes_max: int


def bounds(
    cursor: Cursor, *, bytes_max: int | None, share: float
) -> tuple[dict[int, date], list[Full]]:
    """
    Return how near topics are to the bytes that they may have.

    Of each topic with a bound, the first day that it would keep with a share of it; and
    what has more bytes than it may.

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
    for topic in records(cursor, BOUNDED):
        of_days = {day: of.get(topic.id, 0) for day, of in noted.items()}
        left = max(topic.log_bytes - sum(of_days.values()), 0)
        if topic.retain_bytes is not None and left > topic.retain_bytes:
            full.append(Full(topic.name, left, topic.retain_bytes))
        # What is in no closed day counts, and stays.
        own = first_of({**of_days, date.max: left}, topic.retain_bytes)
        if first := sizes.latest([own, whole]):
            firsts[topic.id] = first
    return firsts, full
