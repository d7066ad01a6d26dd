"""
Lag: how far behind the readers of a group are, by partition, and why.

Derived from the rows when somebody asks; nothing is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django_pgqueue.log import horizon
from django_pgqueue.log.closed_days import unread_since
from django_pgqueue.log.in_partition import RISING, within
from django_pgqueue.postgres import keys
from django_pgqueue.postgres.cursor import Cursor
from django_pgqueue.postgres.limits import along_index

# A transaction that has published and stays open holds its topics' readers back.
PUBLISHING_SECONDS_MAX = 60.0

# Messages are counted up to this many for each partition.
COUNTED_MESSAGES_MAX = 10_000

# Locks: none. Counts are bounded; a group's filter is not looked at. The sequence is
# read after the positions, which are those of the snapshot. %(bounds)s: of the topics
# that somebody publishes to.
LAG = f"""
SELECT p.group_id, p.id, p.partition, p.position, ahead.unread, ahead.held_back,
       oldest.id,
       extract(epoch FROM clock_timestamp() - oldest.published_at)::float8,
       p.leased_by, p.leased_until,
       p.leased_until IS NOT NULL AND p.leased_until > statement_timestamp(),
       p.retry_at, p.retry_at IS NOT NULL AND p.retry_at > statement_timestamp(),
       p.failures, p.single_to, p.errors -> -1 ->> 'message', p.halted_at,
       p.halted_for, p.moved_at, g.paused_at IS NOT NULL,
       p.position > (SELECT {horizon.DRAWN})
  FROM pgqueue_position p JOIN pgqueue_consumer_group g ON g.id = p.group_id
  LEFT JOIN unnest(%(topics)s::int[], %(bounds)s::bigint[]) AS held(topic_id, bound)
       ON held.topic_id = g.topic_id
 CROSS JOIN LATERAL (
       SELECT count(*) AS unread,
              count(*) FILTER (WHERE seen.id > coalesce(held.bound, %(highest)s))
              AS held_back
         FROM (SELECT m.id FROM pgqueue_message m
                WHERE m.topic_id = g.topic_id
                  AND {within("p.partition", after="p.position")}
                  AND m.published_at >= %(since)s::timestamptz
                {RISING} LIMIT %(limit)s) seen) ahead
  LEFT JOIN LATERAL (
       SELECT m.id, m.published_at FROM pgqueue_message m
        WHERE m.topic_id = g.topic_id
          AND {within("p.partition", after="p.position")}
          AND m.published_at >= %(since)s::timestamptz
        {RISING} LIMIT 1) oldest ON true
 WHERE p.group_id = ANY(%(groups)s::bigint[])
 ORDER BY p.group_id, p.partition
"""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far behind a group is in one partition."""

    id: int
    partition: int
    position: int
    # Messages after the position, whatever the group's filter; exact below the limit.
    unread: int
    # Those of them that nobody may read yet, since somebody publishes still.
    held_back: int
    oldest_id: int | None
    # Since the first unread message was published; None: everything is read.
    seconds: float | None
    leased_by: str | None
    leased_until: datetime | None
    is_leased: bool
    retry_at: datetime | None
    is_backing_off: bool
    failures: int
    single_to: int | None
    last_error: str | None
    halted_at: datetime | None
    # "error" or "retention"; None: it is not halted.
    halted_for: str | None
    moved_at: datetime | None
    is_paused: bool
    # The sequence of messages has not come so far: as after a restore without it.
    is_beyond: bool

    @property
    def state(self) -> str:
        """
        Return what it does: one word, the first of these that is true.

        "beyond" (what is published lies before its position: the sequence of messages
        is behind), "halted", "paused", "reading", "retrying" (it waits for the next
        attempt), "idle" (everything is read), "held back" (by a transaction that
        publishes), "waiting" (for a reader).
        """
        states = (
            ("beyond", self.is_beyond),
            ("halted", self.halted_at is not None),
            ("paused", self.is_paused),
            ("reading", self.is_leased),
            ("retrying", self.is_backing_off),
            ("idle", self.unread == 0),
            ("held back", self.unread == self.held_back),
        )
        return next((word for word, is_so in states if is_so), "waiting")


@dataclass(frozen=True, slots=True)
class Holder:
    """A transaction that publishes to a topic, and holds its readers back."""

    topic_id: int
    # None, like the age since it began: it was prepared for two-phase commit, and has
    # no session.
    pid: int | None
    seconds: float | None
    application_name: str | None
    state: str | None

    @property
    def is_prepared(self) -> bool:
        """Whether it was prepared: it has no session, and so no known age."""
        return self.seconds is None

    @property
    def ended_by(self) -> str:
        """What ends it."""
        if self.is_prepared:
            return "COMMIT PREPARED or ROLLBACK PREPARED: see pg_prepared_xacts."
        return f"SELECT pg_terminate_backend({self.pid})"

    def is_longer(self, seconds: float) -> bool:
        """Whether it has been open for more than *seconds*, or nobody knows."""
        return self.seconds is None or self.seconds > seconds


def lag(
    cursor: Cursor, group_id: int, *, limit: int = COUNTED_MESSAGES_MAX
) -> list[PartitionLag]:
    """
    Return the lag of each partition of a group.

    Args:
        cursor: On the primary, in a transaction of READ COMMITTED with Plans.IN_ORDER.
        group_id: Of the group.
        limit: Count no more messages than that in each partition.
    """
    return lags(cursor, [group_id], limit=limit)[group_id]


def lags(
    cursor: Cursor, group_ids: Sequence[int], *, limit: int = COUNTED_MESSAGES_MAX
) -> dict[int, list[PartitionLag]]:
    """
    Return the lag of each partition of some groups, in five short statements.

    Args:
        cursor: On the primary, in a transaction of READ COMMITTED with Plans.IN_ORDER.
        group_ids: Of the groups.
        limit: Count no more messages than that in each partition.
    """
    bounds = horizon.horizons(cursor)
    since = unread_since(cursor, group_ids)
    params = {
        "groups": list(group_ids),
        "topics": list(bounds.held),
        "bounds": list(bounds.held.values()),
        "highest": bounds.highest,
        "since": since,
        "limit": limit,
    }
    with along_index(cursor):
        cursor.execute(LAG, params)
        rows = cursor.fetchall()
    found: dict[int, list[PartitionLag]] = {group: [] for group in group_ids}
    for group, *row in rows:
        found[group].append(PartitionLag(*row))
    return found


def holders(cursor: Cursor, topic_id: int | None = None) -> list[Holder]:
    """Return who holds the readers of a topic back, the longest first; None: of any."""
    cursor.execute(horizon.HOLDERS, {"class": keys.TOPICS})
    found = [Holder(*row) for row in cursor.fetchall()]
    return [each for each in found if topic_id is None or each.topic_id == topic_id]
