"""
Snapshots: who may still publish without seeing what a transaction has written.

Not told by the ids of transactions alone: one that has an old snapshot may have no id
yet, and get a higher one.
"""

from __future__ import annotations

from django_pgqueue.postgres.cursor import Cursor

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
    cursor.execute(HAS_OLDER, {"xid": xid})
    row = cursor.fetchone()
    return row is not None and bool(row[0])
