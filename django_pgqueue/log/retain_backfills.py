"""
Retain, of back-fills: who has not got older messages yet loses them, and is told.

A subscription that begins with messages of before gets jobs for them in batches; while
it is disabled it gets none. What retention removes meanwhile has no job of it, now and
ever. Nothing is halted for that: a job of a later message does not depend on those of
earlier ones. It is said before, by the doctor, and when it happens: to the log, to a
signal, and in the row.
"""

from __future__ import annotations

from django_pgqueue.log.backfill import MISSED
from django_pgqueue.log.retain import LOST_MAX, BackfillLoss, Going, loss_entry
from django_pgqueue.postgres.cursor import Cursor

# Which messages of a topic have no job of a back-fill yet: as backfill.FILL has it.
_WANTED = f"""
       m.topic_id = t.id AND m.id > s.backfill_position
   AND {MISSED}
   AND m.published_at >= CASE WHEN s.start IN ('earliest', 'latest')
                              THEN '-infinity' ELSE s.start END::timestamptz
   AND (s.pattern = s.topic OR pgqueue_pattern_selects(s.pattern, m.name))
   AND (s.payload_filter IS NULL OR m.payload @> s.payload_filter)
"""
_OPEN = """
  FROM pgqueue_subscription s
  JOIN pgqueue_topic t ON s.topic IS NULL OR s.topic = t.name
"""

# Of what goes, and what was not told before: the announcement is repeated. Locks: none.
LOST = f"""
SELECT s.id, t.name, s.pattern, s.queue, s.task, s.disabled_at IS NOT NULL, lost.*
  {_OPEN}
 CROSS JOIN LATERAL (
       SELECT count(*), min(unread.id), max(unread.id),
              min(unread.published_at), max(unread.published_at)
         FROM (SELECT m.id, m.published_at FROM pgqueue_message m
                WHERE {_WANTED}
                  AND m.id > coalesce((s.lost -> 'told' ->> t.name)::bigint, 0)
                  AND m.published_at >= %(since)s AND m.published_at < %(before)s
                ORDER BY m.id LIMIT %(limit)s + 1) unread) lost
       (messages, first_id, last_id, first_at, last_at)
 WHERE s.backfill_position IS NOT NULL AND t.id = %(topic)s AND lost.messages > 0
 ORDER BY s.id
"""

# Up to where each topic was told stays beside the latest entry: to where it is removed
# now. Locks: a row lock on the subscription, until the caller's transaction ends; its
# back-fill waits for the topic before.
NOTE = """
UPDATE pgqueue_subscription s
   SET lost = %(entry)s::jsonb || jsonb_build_object(
           'at', clock_timestamp(),
           'told', coalesce(s.lost -> 'told', '{}')
                   || jsonb_build_object(t.name, t.removed_to))
  FROM pgqueue_topic t
 WHERE s.id = %(id)s AND t.id = %(topic)s
"""

# The oldest message that a back-fill has not had, where it has outlived a share of its
# retention. Locks: none.
BEHIND = f"""
SELECT t.name AS topic, s.pattern, s.queue, s.disabled_at IS NOT NULL AS is_disabled,
       extract(epoch FROM clock_timestamp() - oldest.published_at)::float8 AS seconds,
       extract(epoch FROM keep.log)::float8 AS keep_seconds
  {_OPEN}
 CROSS JOIN LATERAL (SELECT coalesce(t.retain, %(default)s::interval) AS log) keep
 CROSS JOIN LATERAL (
       SELECT m.published_at FROM pgqueue_message m
        WHERE {_WANTED} AND m.id > t.removed_to
          AND m.published_at < clock_timestamp() - keep.log * %(share)s::float8
        ORDER BY m.id LIMIT 1) oldest
 WHERE s.backfill_position IS NOT NULL
 ORDER BY 5 DESC
"""

# What was lost lately. Locks: none.
LOST_LATELY = """
SELECT s.pattern, s.queue, s.lost ->> 'message' AS message
  FROM pgqueue_subscription s
 WHERE (s.lost ->> 'at')::timestamptz > clock_timestamp() - %(period)s::interval
 ORDER BY s.queue, s.pattern
"""


def announce_backfills(cursor: Cursor, going: Going) -> list[BackfillLoss]:
    """
    Note what subscriptions lose, and return it; what was told before is left out.

    Args:
        cursor: In the transaction in which retain.announce() was called before: that
            has locked the topic, so that no back-fill makes jobs of it meanwhile.
        going: What goes.
    """
    cursor.execute(
        LOST,
        {
            "topic": going.topic_id,
            "since": going.since,
            "before": going.before,
            "limit": LOST_MAX,
        },
    )
    losses = []
    for row in cursor.fetchall():
        subscription, topic, pattern, queue, task, is_disabled, count, *which = row
        first_id, last_id, first_at, last_at = which
        loss = BackfillLoss(
            *(topic, pattern, queue, task, is_disabled),
            *(min(count, LOST_MAX), count <= LOST_MAX),
            *(first_id, last_id, first_at, last_at),
        )
        entry = loss_entry(
            loss, "it had its job", "they had their jobs", topic=loss.topic
        )
        note = {"id": subscription, "topic": going.topic_id, "entry": entry}
        cursor.execute(NOTE, note)
        losses.append(loss)
    return losses
