"""
Horizon: up to which id a topic's log can be read without skipping anything.

Ids commit out of order: a reader that goes on after the highest id that it has seen
never sees what commits later with a lower one. So a transaction that publishes holds a
lock whose key says above which id its own are, and a reader goes no further than the
lowest such lock of its topic. Only those who publish hold readers back, each only the
topics that it publishes to.

The order is the proof: the highest id drawn, then the locks, then the messages. So
horizons() is a statement of its own, in autocommit or before a later snapshot; a bound
stays true however old it is. docs/explanation/queues-and-logs.md has the proof.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from django_pgqueue.postgres.cursor import Cursor, first

# The highest id that was drawn; not SELECT last_value, for the reason in
# sql/horizons.sql. Of a sequence that was never called: 0.
DRAWN = "coalesce(pg_sequence_last_value('pgqueue_message_id_seq'), 0)"

# Locks: none; it reads the server's table of locks, 0.2 ms, and 5 ms with 5,000 locks.
# On the primary alone: sql/horizons.sql.
HORIZONS = "SELECT topic_id, bound FROM pgqueue_horizons()"

# Who holds a topic back, the longest first: of those with the lock, who has our log
# open for writing; others are of another installation in this database. Locks: none.
HOLDERS = """
SELECT l.classid::bigint - %(class)s AS topic_id, l.pid,
       extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS seconds,
       a.application_name, a.state
  FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)
 WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.mode = 'ShareLock'
   AND l.granted
   AND l.classid::bigint BETWEEN %(class)s + 1 AND 2147483647
   AND l.database = (SELECT d.oid FROM pg_database d
                      WHERE d.datname = current_database())
   AND EXISTS (SELECT FROM pg_locks ours
                WHERE ours.locktype = 'relation' AND ours.database = l.database
                  AND ours.relation = 'pgqueue_message'::regclass
                  AND ours.mode = 'RowExclusiveLock' AND ours.granted
                  AND ours.virtualtransaction = l.virtualtransaction)
 ORDER BY a.xact_start NULLS FIRST
"""


@dataclass(frozen=True, slots=True)
class Horizons:
    """The bounds of all topics, as they were at one moment."""

    # The highest id that was drawn: of topics to which nobody publishes.
    highest: int
    held: Mapping[int, int]

    def of(self, topic_id: int) -> int:
        """Return up to which id the log of a topic can be read."""
        return self.held.get(topic_id, self.highest)


def horizons(cursor: Cursor) -> Horizons:
    """
    Return up to which id each topic can be read: one round trip.

    Args:
        cursor: On the primary, in READ COMMITTED. What is read with the answer has to
            be another statement, after this one.
    """
    cursor.execute(HORIZONS)
    bounds = dict(cursor.fetchall())
    return Horizons(bounds.pop(None), bounds)


# Snapshots ----------------------------------------------------------------------------
# Snapshots: who may still publish without seeing what a transaction has written.
#
# Not told by the ids of transactions alone: one that has an old snapshot may have no id
# yet, and get a higher one.


# Locks: none. Whether a session has a snapshot that may not see what a transaction has
# written: while an older one runs, any may. One that a vacuum has can publish nothing;
# of another role's session backend_type is NULL, and then it counts. xid8s are
# compared, as ages from the next one; it is read first, so that what comes between
# makes a snapshot look older. A number that this server has not given yet is of another
# one, from which it was restored.
HAS_OLDER = """
SELECT EXISTS (
       SELECT FROM pg_stat_activity a
        WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
          AND a.backend_type IS DISTINCT FROM 'autovacuum worker'
          AND a.backend_xmin IS NOT NULL
          AND next.xid - age(a.backend_xmin) <= %(xid)s::bigint)
  FROM (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xid) next
 WHERE next.xid > %(xid)s::bigint
"""


def has_older(cursor: Cursor, xid: int) -> bool:
    """
    Whether a statement may still publish that does not see a transaction.

    Args:
        cursor: In autocommit. What is drawn afterwards has to be asked afterwards.
        xid: Of a transaction that has committed, as pg_current_xact_id() gives it.
    """
    return bool(first(cursor, HAS_OLDER, xid=xid))
